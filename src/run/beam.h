// SPDX-License-Identifier: MIT
#pragma once
// Beam search over any model that gives log-probabilities of the next token. Manages and ranks
// hypotheses; the caller evaluates the model.

#include "src/base/bounded_list.h"
#include "src/base/host_buffer.h"

namespace moe {

inline constexpr int32_t kMaxBeam = 64;

/// When a search ends: once `beam` hypotheses have ended, rejecting later ones of that step
/// (fairseq); once no running one can beat the worst of the `beam` best ended ones (transformers,
/// early_stopping=False); or after the step in which `beam` have ended, with the best of them
/// (transformers 5, early_stopping=True).
enum class BeamStop : uint8_t { kCount, kBound, kStep };

/// Lengths count generated tokens without the EOS.
struct BeamOptions {
  int32_t beam = 5;          // 1..kMaxBeam
  int32_t n_best = 1;        // 1..beam
  int32_t min_tokens = 1;    // >= 0
  int32_t max_tokens = 256;  // >= min_tokens; after that only EOS is allowed
  float length_penalty = 1;  // alpha: an ended hypothesis of n tokens has the score sum / n^alpha
  BeamStop stop = BeamStop::kCount;
};

/// Points to host memory that must outlive the search.
struct BeamTokens {
  std::span<const int32_t> eos;     // each ends a hypothesis
  std::span<const int32_t> prefix;  // forced beginning, at most max_tokens; counts in the length
  int32_t pad = -1;                 // never generated; -1: none
};

/// MOE_ERR_RANGE or MOE_ERR_NON_FINITE, naming the field.
Status validate(const BeamOptions& options);

/// Searches one text:
///
///     begin(); while (!done()) { for each j: offer(j, log-probabilities after j); end_step(); }
///
/// Each step extends every running hypothesis by every token and sorts the extensions by their sum
/// of log-probabilities (float); ties go to the lower hypothesis, then to the lower token. Of the
/// best 2 beam, an EOS among the first `beam` ends its hypothesis, a lower one is discarded, and
/// the best `beam` others become the running hypotheses 0, 1, ...
class BeamSearch {
 public:
  explicit BeamSearch(const Allocator& allocator) : memory_(allocator) {}

  /// Validates `options`, and allocates all memory that the search needs.
  Status begin(const BeamOptions& options, const BeamTokens& tokens);
  /// Host memory that begin() allocates.
  static uint64_t bytes(const BeamOptions& options);
  bool done() const { return running_.empty(); }

  // Running hypotheses; initially one without tokens.
  int32_t n_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t parent(int32_t j) const { return running_[static_cast<size_t>(j)].parent; }
  int32_t token(int32_t j) const { return running_[static_cast<size_t>(j)].token; }

  /// Log-probabilities of every token after hypothesis j; once per step for each j, ascending. -inf
  /// excludes a token. MOE_ERR_NON_FINITE for NaN and +inf.
  Status offer(int32_t j, std::span<const float> logprobs);
  /// MOE_ERR_RANGE if the search is over and no hypothesis has ended.
  Status end_step();

  // Ended hypotheses, best first; ties go to the earlier end; at most n_best.
  int32_t n_results() const;
  float score(int32_t i) const;
  int32_t n_tokens(int32_t i) const { return ended_[static_cast<size_t>(i)].n_tokens; }
  /// Writes the n_tokens(i) tokens, the EOS last.
  void read(int32_t i, int32_t* tokens) const;

 private:
  struct Continuation {
    float sum;
    int32_t parent;  // running hypothesis
    int32_t token;
    int32_t at;  // index into the trail
  };
  struct Ended {
    double score;
    int32_t n_tokens;
    int32_t token;   // the EOS
    int32_t parent;  // index into the trail
  };
  struct Step {
    int32_t before;  // index into the trail; -1: none
    int32_t token;
  };

  void lay_out(Carver& c);
  bool is_eos(int32_t token) const;
  bool allowed(int32_t token) const;
  void insert(const Continuation& c);
  double score_of(float sum) const;
  void end(const Continuation& c);
  void follow();
  bool is_over() const;

  BeamOptions options_;
  BeamTokens tokens_;
  int32_t n_ = 0;  // tokens of a running hypothesis
  BoundedList<Continuation> running_;
  BoundedList<Continuation> best_;  // of the current step, best first
  BoundedList<Ended> ended_;        // best first
  BoundedList<Step> trail_;         // one entry per hypothesis that ever ran
  HostBuffer memory_;
};

}  // namespace moe
