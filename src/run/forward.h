#pragma once
// The forward pass, written once over Device, for rows of one or several sessions.

#include "src/base/array.h"
#include "src/base/status.h"
#include "src/run/session.h"

namespace moe {

struct SessionState;

/// Gets the logits after token `index` of a part (host memory, valid during the call).
struct LogitSink {
  Status (*take)(void* user, size_t index, const float* logits) = nullptr;
  void* user = nullptr;
};

/// The next tokens of one session in a batch.
struct BatchPart {
  SessionState* session = nullptr;
  std::span<const int32_t> tokens;
  int32_t position = 0;  // of the first token
  /// Rows whose logits are computed, into the session's own logits one after the other.
  LogitRows rows = LogitRows::kNone;
  LogitSink sink;                      // kAll, kSome: called for each row, in order
  int32_t first_row = 0;               // in the batch; filled in by forward()
  std::span<const int32_t> some = {};  // kSome: the rows, ascending
  float* hidden = nullptr;  // host memory (tokens, d_model) for the normed hidden states, or null;
                            // of a decoder, without logits
};

/// Computes all parts (of different sessions of one model) in one pass, in the work memory of
/// `lead`. Writes the sessions' KV caches and logits, and nothing else: their positions stay. At
/// most lead's chunk of tokens in all. MOE_ERR_CANCELLED when one of the sessions was cancelled.
Status forward(SessionState& lead, std::span<BatchPart> parts);

}  // namespace moe
