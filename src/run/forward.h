// SPDX-License-Identifier: MIT
#pragma once
// The forward pass over Device, for rows of one or several sessions.

#include "src/base/array.h"
#include "src/base/status.h"
#include "src/run/session.h"

namespace moe {

struct SessionState;

/// Receives the logits after token `index` of a part (host memory, valid during the call).
struct LogitSink {
  Status (*take)(void* user, size_t index, const float* logits) = nullptr;
  void* user = nullptr;
};

/// Receives the log-probability of target `index`, in order.
struct ScoreSink {
  void (*take)(void* user, size_t index, double logprob) = nullptr;
  void* user = nullptr;
};

/// Receives the normed hidden states of a part's `n` tokens: device memory (n, d_model), valid
/// during the call.
struct HiddenSink {
  Status (*take)(void* user, const float* hidden, size_t n) = nullptr;
  void* user = nullptr;
  /// Not null: called after take() for the mean of the states (host memory, valid during the call),
  /// of which the head makes the part's one row of outputs.
  const float* (*mean)(void* user) = nullptr;
};

/// Rows of a part whose logits are only needed for the log-probability of one token each.
struct ScoredRows {
  size_t first = 0;                  // row of the part
  std::span<const int32_t> targets;  // for the rows from `first` on
  ScoreSink sink;
  size_t first_index = 0;  // of the first target, for the sink
};

/// The next tokens of one session in a batch.
struct BatchPart {
  SessionState* session = nullptr;
  std::span<const int32_t> tokens;
  int32_t position = 0;  // of the first token
  /// Rows whose logits are computed, in order, into the session's own logits.
  LogitRows rows = LogitRows::kNone;
  LogitSink sink;                      // kAll, kSome: called per row, in order
  int32_t first_row = 0;               // in the batch; set by forward()
  std::span<const int32_t> some = {};  // kSome: the rows, ascending
  HiddenSink hidden = {};              // if set, a decoder has no logits
  ScoredRows scored = {};
  size_t second = 0;       // the first token of a second text; 0: there is none
  bool continues = false;  // the session's pass before this one, and is counted with it
  int32_t text = 0;        // selects keys and values: each hypothesis of a beam search has its own
};

/// Computes all parts (different sessions of one model, or texts of one) in one pass, in the work
/// memory of `lead`. Writes only the sessions' KV caches and logits; their positions do not change.
/// At most lead's chunk of tokens in total. MOE_ERR_CANCELLED if one of the sessions was cancelled.
Status forward(SessionState& lead, std::span<BatchPart> parts);

/// Runs an encoder-decoder's encoder over `tokens`, at most one chunk, and stores the keys and
/// values of every cross attention in the session's cache. hidden: host memory (tokens, d_model)
/// for the encoder's output, or null. Errors as forward().
Status forward_source(SessionState& state, std::span<const int32_t> tokens, float* hidden);

}  // namespace moe
