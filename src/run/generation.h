// SPDX-License-Identifier: MIT
#pragma once
// A generation in progress: samples and reports tokens. Private to src/run.

#include <algorithm>

#include "src/base/host_buffer.h"
#include "src/run/constraint.h"
#include "src/run/generate.h"
#include "src/run/session_state.h"
#include "src/run/stop_matcher.h"
#include "src/text/stream_decoder.h"

namespace moe {

/// Belongs to one call of generate(), or to a SteppedGeneration.
class Generation {
 public:
  Generation(SessionState& state, const Tokenizer* tokenizer, const GenerateOptions& options,
             const Allocator& allocator)
      : state_(state),
        tokenizer_(tokenizer),
        options_(options),
        drafter_(static_cast<size_t>(options.max_draft)),
        stops_(allocator),
        text_(allocator),
        copy_(allocator),
        constraint_(options, allocator),
        allocator_(allocator) {}

  Status prepare();
  Status run();
  GenerateResult& result() { return result_; }
  int stop() const { return stops_.found(); }

  // In steps, after prepare(): the caller evaluates the tokens (SteppedGeneration).
  Status prime(StreamDecoder& decoder);
  /// Samples the next token and reports it. *token: to be evaluated before the next call; -1: the
  /// generation has ended, and result().finish says why.
  Status next(StreamDecoder* decoder, int32_t* token);
  /// After next(): evaluates the token that it gave, with a draft of those after it, and goes on as
  /// if next() had given each.
  Status advance(StreamDecoder* decoder, int32_t* token);

 private:
  /// The tokens that would be sampled after each token of a pass that checks a draft, up to the
  /// first wrong one.
  struct Checked {
    TokenLogprob tokens[kMaxDraft + 1];
    TokenLogprob top[(kMaxDraft + 1) * kMaxTopLogprobs];
    size_t n = 0;
    Status status;  // of the token after these
  };

  Status loop(StreamDecoder* decoder);
  Status step();
  Status step_with_workspace();
  Status give_next(StreamDecoder* decoder, int32_t* token);
  Status choose();
  Status sample_next_token();
  Status sample_row(const float* logits, size_t text, TokenLogprob* next, TokenLogprob* top);
  Status report(StreamDecoder* decoder);
  Status check_draft(size_t n_drafted, StreamDecoder* decoder, bool* checked);
  Status take_draft(const Checked& checked, size_t n_drafted, StreamDecoder* decoder,
                    size_t* n_right);
  size_t draft();
  size_t draft_more(std::span<const int32_t> text, size_t room);
  static size_t guess(void* user, size_t n, int32_t* out, double* seconds);
  Status decode(StreamDecoder* decoder, int32_t token, std::string_view* ready);
  Status flush(StreamDecoder* decoder);
  bool at_limit(int32_t position);
  bool is_end(int32_t token) const;
  bool at_end_of_text();
  void end(Finish finish) {
    ended_ = true;
    result_.finish = finish;
  }
  bool changes_logits() const {
    return options_.change_logits != nullptr || options_.grammar != nullptr;
  }
  bool give(const Piece& piece) {
    return options_.callback == nullptr || options_.callback(options_.user, piece);
  }
  size_t n_top() const { return static_cast<size_t>(options_.n_top); }

  SessionState& state_;
  const Tokenizer* tokenizer_;
  const GenerateOptions& options_;
  GenerateResult result_;
  bool ended_ = false;
  TokenLogprob next_{};                // sampled, to be reported
  TokenLogprob top_[kMaxTopLogprobs];  // its candidates
  Drafter drafter_;
  int32_t pass_[kMaxDraft + 1];  // the next token and the draft
  bool forced_ = false;          // the grammar has drafted
  StopMatcher stops_;
  String text_;
  std::span<float> changed_;  // (vocab) for the callback and the grammar; the session keeps its own
  HostBuffer copy_;
  Constraint constraint_;  // the grammar's
  bool in_header_ = false;
  const Allocator& allocator_;
};

}  // namespace moe
