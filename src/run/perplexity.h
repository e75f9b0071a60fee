// SPDX-License-Identifier: MIT
#pragma once
// How well a model predicts a text.

#include "src/run/session.h"

namespace moe {

/// Appends `tokens` as Session::eval does and writes the log-probability of each given the
/// preceding text: log_probability() of that row of logits, rounded to float. Only a few rows exist
/// at once. logprobs: one per token, except for the first token of an empty session, which has no
/// predecessor. If the call fails, those of completed chunks have been written.
Status score_tokens(Session& session, std::span<const int32_t> tokens, std::span<float> logprobs);

struct PerplexityOptions {
  /// Precedes every window and is not scored.
  std::span<const int32_t> prefix;
  /// Distance between window starts in tokens of the text; 0: a whole window (no overlap). With a
  /// smaller stride each token is scored once, in the first window that contains it.
  int32_t stride = 0;
  /// Called after each window with the number of tokens done; false stops with MOE_ERR_CANCELLED.
  bool (*progress)(void* user, uint64_t done, uint64_t total) = nullptr;
  void* user = nullptr;
};

struct Perplexity {
  uint64_t n_scored = 0;
  double mean_nll = 0;    // nats per token
  double perplexity = 0;  // exp(mean_nll)
};

/// Splits `tokens` into windows of the session's context, each preceded by the prefix. Without a
/// prefix the first token of the first window (with the default stride: of every window) has no
/// predecessor and is not scored. Log-probabilities are summed in double in text order.
/// The session must be empty and is empty afterwards, also on failure. MOE_ERR_RANGE if nothing can
/// be scored (fewer than 1 token, or 2 without a prefix; no room after the prefix).
Status measure_perplexity(Session& session, std::span<const int32_t> tokens,
                          const PerplexityOptions& options, Perplexity* out);

}  // namespace moe
