#pragma once
// How well a model predicts a text.

#include "src/run/session.h"

namespace moe {

/// Appends `tokens` as Session::eval does, and writes the log-probability that each of them had
/// after the text in front of it: the nearest float to log_probability() of that row of logits, of
/// which only a few exist at once. logprobs: one for each token; the first token of an empty
/// session has nothing in front and gets none. When the call fails, those of finished chunks have
/// been written.
Status score_tokens(Session& session, std::span<const int32_t> tokens, std::span<float> logprobs);

struct PerplexityOptions {
  /// Stands in front of every window and is not scored itself: what a text begins with.
  std::span<const int32_t> prefix;
  /// Tokens of the text from one window's start to the next; 0: a whole window (no overlap). With a
  /// smaller stride each token is scored once, in the first window that reaches it.
  int32_t stride = 0;
  /// Called after each window with tokens of the text done; false stops with MOE_ERR_CANCELLED.
  bool (*progress)(void* user, uint64_t done, uint64_t total) = nullptr;
  void* user = nullptr;
};

struct Perplexity {
  uint64_t n_scored = 0;
  double mean_nll = 0;    // nats per token
  double perplexity = 0;  // exp(mean_nll)
};

/// Cuts `tokens` into windows of the session's context, the prefix in front of each. Without one
/// the first window's first token (and, with the default stride, every window's first) has nothing
/// in front and is not scored. The sum of log-probabilities is taken in double in the order of the
/// text.
/// The session must be empty and is empty afterwards, also on failure. MOE_ERR_RANGE when nothing
/// can be scored (fewer than 1 token, or 2 without a prefix; no room behind the prefix).
Status measure_perplexity(Session& session, std::span<const int32_t> tokens,
                          const PerplexityOptions& options, Perplexity* out);

}  // namespace moe
