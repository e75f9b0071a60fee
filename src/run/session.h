#pragma once
// One text in the making: a KV cache, a position, and what is needed to move it forward.

#include <atomic>
#include <string_view>

#include "src/run/memory.h"
#include "src/run/sampler.h"

namespace moe {

struct SessionState;
struct BatchPart;

/// Which rows of an evaluation are asked for. (The last row is always kept for sample().)
enum class LogitRows : uint8_t { kNone, kLast, kAll, kSome };

/// One vector of a text: the mean of its tokens', the first one's or the last one's.
enum class Pooling : uint8_t { kMean, kFirst, kLast };

/// What encode() is to write, host memory; null: not wanted.
struct Encoding {
  float* hidden = nullptr;  // (tokens, d_model) after the final norm
  float* pooled = nullptr;  // (d_model)
  Pooling pooling = Pooling::kMean;
  std::span<const int32_t> rows = {};  // ascending; whose outputs are wanted; empty: of every token
  float* outputs = nullptr;            // (rows, n_outputs); classes: one row, of the first token
};

/// A session is used by one thread at a time; a second caller gets MOE_ERR_STATE. Only cancel() may
/// be called from any thread (or a signal handler) at any time. The model must outlive it.
///
/// Results do not depend on how a text is cut into calls, on the chunk size, on threads or on which
/// other sessions advance in the same call (with a router capacity set, they depend on the calls).
///
/// Errors. A call refused for its arguments has changed nothing. After MOE_ERR_CANCELLED, or a
/// fault found while computing (MOE_ERR_NON_FINITE for logits that are asked for and no numbers
/// among them), the position is that of the last chunk that was finished. After
/// MOE_ERR_DEVICE the session is poisoned: MOE_ERR_STATE until reset().
class Session final {
 public:
  /// MOE_ERR_BUDGET, before anything is allocated, when options.memory_cap is too small. Then
  /// brings in the model's weights (Model::prepare).
  static Result<Box<Session>> create(Model& model, const SessionOptions& options,
                                     const Allocator& allocator);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Appends tokens. logits: host memory, 0, 1 or tokens.size() rows of vocab_size as `rows` says;
  /// with kAll, when the call fails, the rows of finished chunks have been written.
  /// MOE_ERR_TOO_LONG when the context cannot hold them, or when a capacity is set and they are
  /// more than one chunk; MOE_ERR_RANGE for an id outside the vocabulary.
  Status eval(std::span<const int32_t> tokens, LogitRows rows, float* logits);

  /// Runs a model over a text and leaves the session as it was. An encoder sees the text whole; a
  /// decoder's tokens see what is in front of them, which begins with what the session holds.
  /// MOE_ERR_UNSUPPORTED for outputs of a decoder or of a model without a head; MOE_ERR_TOO_LONG
  /// for a text longer than the context, or than the chunk of an encoder; MOE_ERR_NON_FINITE when
  /// what is asked for is no number.
  Status encode(std::span<const int32_t> tokens, const Encoding& out);

  /// Chooses the token that follows, without moving. The draw's number is the position.
  /// MOE_ERR_STATE on an empty session. Logits lost by a rewind are computed again from the last
  /// token.
  Status sample(const SamplingConfig& config, TokenLogprob* out, TokenLogprob* top, size_t n_top);

  int32_t position() const;
  int32_t context() const;
  int32_t chunk() const;
  const SessionOptions& options() const;  // every default filled in
  int32_t remaining() const { return context() - position(); }
  std::span<const int32_t> tokens() const;  // evaluated so far
  const Model& model() const;
  uint64_t bytes() const;  // held by this session
  /// Of the calls of this session; a call of several counts for the first of them. Between calls.
  ExpertStats expert_stats() const;

  /// Forgets everything from `position` on.
  Status rewind(int32_t position);
  /// Empty again, and no longer poisoned. Keeps the router override and the statistics.
  Status reset();

  /// The call in progress returns MOE_ERR_CANCELLED within one layer. Does nothing without one.
  void cancel();

  /// Overrides every MoE layer's router (kernels/router/text.h gives the grammar); empty: as in
  /// the file. All layers are checked before any is changed. With a capacity a chunk that nobody
  /// chose grows to the context (at most kMaxChunk), and bytes() with it: MOE_ERR_BUDGET when that
  /// and other_sessions_bytes, as of now, do not fit under the cap.
  Status set_router(std::string_view text, uint64_t other_sessions_bytes = 0);
  const RouterConfig* router(int32_t layer) const;  // null for a dense layer

  /// Calls it for every MoE layer of every pass from now on. MOE_ERR_UNSUPPORTED on a device with
  /// memory of its own.
  Status set_routing_hook(const RoutingHook& hook);
  /// Starts counting the tokens that become part of the text, from zero; or stops.
  Status count_routing(bool on);
  /// Null when nothing is being counted. Of a dense layer only its activations.
  const RoutingStats* routing_stats(int32_t layer) const;

  /// For create() alone.
  explicit Session(Box<SessionState> state);

 private:
  friend class SessionCall;
  Box<SessionState> state_;
};

/// Appends one token to each of several different sessions of one model in one pass; logits: null
/// or (sessions.size(), vocab_size). Each gets exactly what eval() alone would give it. When the
/// call fails no session has moved. Work memory is the first session's.
Status sessions_step(std::span<Session* const> sessions, std::span<const int32_t> tokens,
                     float* logits);

/// The same with n_tokens[i] tokens for session i (null: one each), which lie in `tokens` one
/// session's behind the other's; logits: of the last token of each. None may have more than the
/// first session's chunk.
Status sessions_eval(std::span<Session* const> sessions, const int32_t* tokens,
                     const size_t* n_tokens, float* logits);

}  // namespace moe
