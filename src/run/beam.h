#pragma once
// Beam search over any model that gives log-probabilities of the next token. It keeps the
// hypotheses and chooses among their continuations; whoever drives it evaluates the model.

#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

inline constexpr int32_t kMaxBeam = 64;

/// When a search ends: once `beam` hypotheses have ended, later ones of that step refused
/// (fairseq); once no running one can still beat the worst of the `beam` best ended (transformers
/// with early_stopping=False); or with the step in which `beam` have ended, the best of which are
/// kept (transformers 5 with early_stopping=True).
enum class BeamStop : uint8_t { kCount, kBound, kStep };

/// Lengths count generated tokens, without the EOS.
struct BeamOptions {
  int32_t beam = 5;          // 1..kMaxBeam
  int32_t n_best = 1;        // 1..beam
  int32_t min_tokens = 1;    // >= 0
  int32_t max_tokens = 256;  // >= min_tokens; after so many the EOS is the only token
  float length_penalty = 1;  // alpha: an ended hypothesis of n tokens has the score sum / n^alpha
  BeamStop stop = BeamStop::kCount;
};

/// Host memory that outlives the search.
struct BeamTokens {
  std::span<const int32_t> eos;     // each of them ends a hypothesis
  std::span<const int32_t> prefix;  // what the text begins with, at no cost; counts in its length
  int32_t pad = -1;                 // is never generated; -1: none
};

/// MOE_ERR_RANGE or MOE_ERR_NON_FINITE, naming the field.
Status validate(const BeamOptions& options);

/// A search of one text:
///
///     begin(); while (!done()) { for each j: offer(j, log-probabilities after j); end_step(); }
///
/// In a step every running hypothesis is continued by every token; the continuations are sorted by
/// their sum of log-probabilities (float), ties by the lower hypothesis and then the lower token.
/// Of the first 2 beam, an EOS among the first `beam` ends its hypothesis and one behind them is
/// thrown away, and the first `beam` others are the next running hypotheses 0, 1, ...
class BeamSearch {
 public:
  explicit BeamSearch(const Allocator& allocator)
      : running_(allocator), best_(allocator), ended_(allocator), trail_(allocator) {}

  /// `options` are validated here.
  Status begin(const BeamOptions& options, const BeamTokens& tokens);
  bool done() const { return running_.empty(); }

  // Running hypotheses. Before the first step there is one, without a token.
  int32_t n_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t parent(int32_t j) const { return running_[static_cast<size_t>(j)].parent; }
  int32_t token(int32_t j) const { return running_[static_cast<size_t>(j)].token; }

  /// Log-probabilities of every token after hypothesis j; for each j once a step, ascending. -inf
  /// is a token that cannot be. MOE_ERR_NON_FINITE for NaN and +inf.
  Status offer(int32_t j, std::span<const float> logprobs);
  /// MOE_ERR_RANGE when the search is over and nothing has ended.
  Status end_step();

  // What has ended, best first: by score, ties by the earlier end; at most n_best of them.
  int32_t n_results() const;
  float score(int32_t i) const;
  int32_t n_tokens(int32_t i) const { return ended_[static_cast<size_t>(i)].n_tokens; }
  /// The n_tokens(i) tokens, the EOS last.
  void read(int32_t i, int32_t* tokens) const;

 private:
  struct Continuation {
    float sum;
    int32_t parent;  // running hypothesis
    int32_t token;
    int32_t at;  // of the trail
  };
  struct Ended {
    double score;
    int32_t n_tokens;
    int32_t token;   // the EOS
    int32_t parent;  // of the trail
  };
  struct Step {
    int32_t before;  // of the trail; -1: none
    int32_t token;
  };

  bool is_eos(int32_t token) const;
  bool allowed(int32_t token) const;
  void insert(const Continuation& c);
  double score_of(float sum) const;
  Status end(const Continuation& c);
  Status follow();
  bool is_over() const;

  BeamOptions options_;
  BeamTokens tokens_;
  int32_t n_ = 0;  // tokens of a running hypothesis
  Array<Continuation> running_;
  Array<Continuation> best_;  // of the step so far, best first
  Array<Ended> ended_;        // best first
  Array<Step> trail_;         // every hypothesis that ever ran
};

}  // namespace moe
