// SPDX-License-Identifier: MIT
#pragma once
// A session: a text's KV cache and position, and the state to advance it.

#include "src/run/memory.h"
#include "src/run/sampler.h"

namespace moe {

struct SessionState;
class PoolMember;

/// Rows of logits to compute. (The last row is always stored for sample().)
enum class LogitRows : uint8_t { kNone, kLast, kAll, kSome };

/// Output of encode(), host memory; null: not requested.
struct Encoding {
  float* hidden = nullptr;  // (tokens, d_model) after the final norm
  float* pooled = nullptr;  // (d_model)
  Pooling pooling = Pooling::kMean;
  bool normalise = false;              // `pooled` to length 1
  std::span<const int32_t> rows = {};  // ascending; tokens to write outputs for; empty: all
  float* outputs = nullptr;            // (rows, n_outputs); classes: one row, of the whole text
  size_t second = 0;                   // the first token of a second text; 0: there is none
};

/// One thread at a time; a concurrent call gets MOE_ERR_STATE. Only cancel() may be called from any
/// thread (or a signal handler) at any time. The model must outlive the session.
///
/// Results do not depend on how a text is split into calls, on the chunk size, on threads or on
/// other sessions in the same call (with a router capacity they depend on the calls).
///
/// Errors: invalid arguments change nothing. After MOE_ERR_CANCELLED, or an error found while
/// computing (MOE_ERR_NON_FINITE for requested logits that are not finite), the position is the end
/// of the last completed chunk. After MOE_ERR_DEVICE the session is poisoned: MOE_ERR_STATE until
/// reset().
class Session final {
 public:
  /// MOE_ERR_BUDGET, before anything is allocated, if the model may not take so much memory. Then
  /// loads the model's weights (Model::prepare). Sessions that exist may get smaller automatic
  /// chunks.
  static Result<Box<Session>> create(Model& model, const SessionOptions& options,
                                     const Allocator& allocator);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Appends tokens. logits: host memory, 0, 1 or tokens.size() rows of vocab_size as `rows` says;
  /// with kAll, if the call fails, rows of completed chunks have been written. MOE_ERR_TOO_LONG if
  /// the context cannot hold them, or if a capacity is set and they exceed one chunk; MOE_ERR_RANGE
  /// for an id outside the vocabulary.
  Status eval(std::span<const int32_t> tokens, LogitRows rows, float* logits);

  /// Runs a model over a text without changing the session. An encoder sees the text whole; a
  /// decoder's tokens see the session's text and the tokens before them. MOE_ERR_UNSUPPORTED for
  /// outputs of a decoder or of a model without a head; MOE_ERR_TOO_LONG for a text longer than the
  /// context or an encoder's chunk; MOE_ERR_NON_FINITE if a requested value is not finite.
  Status encode(std::span<const int32_t> tokens, const Encoding& out);

  /// Samples the next token without advancing. The draw number is the position. MOE_ERR_STATE on an
  /// empty session. Logits lost by a rewind are recomputed from the last token.
  Status sample(const SamplingConfig& config, TokenLogprob* out, TokenLogprob* top, size_t n_top);

  int32_t position() const;
  /// An encoder's is at most its chunk, because it sees a text whole.
  int32_t context() const;
  int32_t chunk() const;                    // an automatic one can change between calls
  const SessionOptions& options() const;    // every default filled in
  std::span<const int32_t> tokens() const;  // evaluated so far
  const Model& model() const;
  uint64_t bytes() const;  // held by this session, without the workspace of its passes
  /// Calls of this session; a call of several sessions counts for the first. Between calls only.
  ExpertStats expert_stats() const;

  /// Whether the text after the next tokens is going to be drafted: a layer that guesses then sees
  /// them as they are evaluated. Off after a generation.
  Status expect_drafts(bool on);

  /// Drops all positions from `position` on.
  Status rewind(int32_t position);
  /// Empties the session and clears a device fault. Router override and statistics are unchanged.
  Status reset();

  /// Makes the current call return MOE_ERR_CANCELLED within one layer. No effect without one.
  void cancel();

  /// Overrides every MoE layer's router (kernels/router/text.h); null: as in the file.
  /// All layers are checked before any is changed. With a capacity an automatic chunk is the
  /// context (at most kMaxChunk): MOE_ERR_BUDGET if the model may not take so much.
  Status set_router(const moe_router* router);
  const RouterConfig* router(int32_t layer) const;  // null for a dense layer

  /// Calls the hook for every MoE layer of every later pass. MOE_ERR_UNSUPPORTED on a device with
  /// its own memory.
  Status set_routing_hook(const RoutingHook& hook);
  /// Starts counting tokens of the text from zero, or stops.
  Status count_routing(bool on);
  /// Null when nothing is being counted. Of a dense layer only its activations.
  const RoutingStats* routing_stats(int32_t layer) const;

  /// For create() alone.
  Session(Box<PoolMember> member, Box<SessionState> state);

 private:
  friend class SessionCall;
  Box<PoolMember> member_;  // ends when the state has been freed
  Box<SessionState> state_;
};

/// Appends n_tokens[i] tokens (null: one each) to session i of several distinct sessions of one
/// model; `tokens` concatenates them. logits: null or (sessions.size(), vocab_size), of the last
/// token of each. Each gets exactly what eval() would give it. On failure no session has advanced.
/// A pass has at most the rows of the first session's chunk. MOE_ERR_TOO_LONG if a session with an
/// expert capacity has more tokens.
Status sessions_eval(std::span<Session* const> sessions, const int32_t* tokens,
                     const size_t* n_tokens, float* logits);

}  // namespace moe
