// SPDX-License-Identifier: MIT
#pragma once
// The interface between the forward pass and the hardware: one abstract Device with coarse
// operations, used by a single forward pass (src/run).
//
// Rules. Activations are float at this interface; each matrix defines how its inputs are quantised.
// Shapes were checked on loading, so operations return nothing: a fault that only the device can
// find (NaN in router scores, a lost GPU) is latched in the Stream, and sync() returns it. Pointers
// in descriptors are device memory unless stated otherwise. Work on one Stream is ordered; a Stream
// serves one pass at a time, on one thread.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/expert_source.h"
#include "kernels/kinds.h"
#include "kernels/mixers/info.h"
#include "kernels/router/router.h"
#include "kernels/row_source.h"
#include "kernels/sample.h"
#include "quant/format.h"
#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

class ExpertMemory;  // kernels/expert_memory.h

/// Rows of a batch. A batch may mix sessions (each with its own cache).
struct BatchRow {
  int32_t session;   // index into AttentionOp::caches
  int32_t position;  // absolute position in that session
  int32_t token;
};

/// y = norm(x), or y + scale * norm(x) with one fused multiply-add per element. y may be x.
struct NormOp {
  const float* x = nullptr;  // (n_rows, d)
  float* y = nullptr;        // (n_rows, d)
  int32_t n_rows = 0;
  int32_t d = 0;
  Norm norm;
  bool accumulate = false;
  float scale = 1;  // when accumulating
};

/// One output matrix of a LinearOp: y (+)= scale * (norm(x) W^T + bias).
struct LinearOut {
  const Matrix* weight = nullptr;
  const float* bias = nullptr;  // (rows) or null
  float* y = nullptr;           // (n_rows, ld_y)
  int64_t ld_y = 0;
  bool accumulate = false;  // y = y + scale * (...), one fused multiply-add per element
  float scale = 1;
};

/// Several matrices on one input, which is normed and quantised once per precision.
struct LinearOp {
  const float* x = nullptr;  // (n_rows, ld_x)
  int64_t ld_x = 0;
  int32_t n_rows = 0;
  int32_t d_in = 0;
  Norm norm;
  const LinearOut* outs = nullptr;  // host memory
  int32_t n_outs = 0;
};

/// x = limit * tanh(x / limit), in place. What is NaN or infinite does not become finite.
struct CapOp {
  float* x = nullptr;  // (n_rows, d)
  int32_t n_rows = 0;
  int32_t d = 0;
  float limit = 0;  // above 0
};

/// x = x * sigmoid(gate), in place.
struct GateOp {
  float* x = nullptr;           // (n_rows, d)
  const float* gate = nullptr;  // (n_rows, d / shared)
  int32_t n_rows = 0;
  int32_t d = 0;
  int32_t shared = 1;  // neighbouring columns with one gate; divides d
};

/// x = x * factor, in place.
struct ScaleOp {
  float* x = nullptr;  // (n_rows, d)
  int32_t n_rows = 0;
  int32_t d = 0;
  float factor = 1;
};

/// gate = act(gate) * up, in place.
struct ActivateOp {
  float* gate = nullptr;      // (n_rows, d)
  const float* up = nullptr;  // (n_rows, ld_up)
  int64_t ld_up = 0;
  int32_t n_rows = 0;
  int32_t d = 0;
  ActivationConfig act;
};

/// Keys and values of one session and one layer, in the cache's type, head-major; the device
/// defines the layout within a head. int8 has one scale per (kv_head, position).
struct KvLayer {
  void* k = nullptr;
  void* v = nullptr;
  float* k_scale = nullptr;  // kInt8: (n_kv_heads, capacity)
  float* v_scale = nullptr;
};
struct KvCacheView {
  KvType type = KvType::kF16;
  int32_t capacity = 0;  // positions, a multiple of kKeyBlock
  KvLayer layer;
  int32_t n_keys = 0;  // cross attention: number of source positions
};

/// Multi-head latent attention with a latent cache. Queries are projected to the latent's width, so
/// that all heads share the same keys, and each head's weighted sum of latents is projected to its
/// values. The cache has one row per position and no values: rope_dims rotated numbers and `width`
/// of the latent (kv_lora_rank).
struct LatentHeads {
  int32_t width = 0;
  Norm norm;                       // of the latent
  const float* z = nullptr;        // (n_rows, width + rope_dims): the latent, and the rotary part
  const Matrix* keys = nullptr;    // (n_kv_heads) of (width, head_dim - rope_dims); host memory
  const Matrix* values = nullptr;  // (n_kv_heads) of (up to head_dim, width); further rows are zero
  // Scratch for max_rows rows at a time.
  int32_t max_rows = 0;
  float* key = nullptr;  // (max_rows, rope_dims + width)
  float* q = nullptr;    // (max_rows, n_heads, rope_dims + width)
  float* out = nullptr;  // (max_rows, n_heads, width)
};

/// QK norm, clip, RoPE, storing K and V in the caches, then softmax attention over the cached
/// positions up to each row's (and its window). Reads K and V only as rounded to the cache's type.
/// Keys in blocks of 64 aligned to the absolute position, ascending. Without a causal mask a
/// session's rows are one text from position 0 on. Without `q` it only stores K and V; without `k`
/// it stores nothing: each row sees the positions up to its own that another layer has stored or,
/// without a causal mask, the n_keys of its session's cache (cross attention).
struct AttentionOp {
  int32_t n_rows = 0;
  const BatchRow* rows = nullptr;       // host memory; rows of a session are consecutive, ascending
  float* q = nullptr;                   // (n_rows, n_heads * head_dim), overwritten; or null
  float* k = nullptr;                   // (n_rows, n_kv_heads * head_dim), overwritten; or null
  float* v = nullptr;                   // the same
  float* out = nullptr;                 // (n_rows, n_heads * head_dim)
  const KvCacheView* caches = nullptr;  // host memory, indexed by BatchRow::session
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  // keys seen, the row's own included; 0: all
  bool causal = true;  // false: a row sees the rows of its session in `rows`, as many of them
                       // before it as after it if there is a window, which is odd
  float multiplier = 1;
  float cap = 0;                  // > 0: score = cap * tanh(score / cap), after the multiplier
  float clip = __builtin_inff();  // q, k and v are clipped to +-clip
  RopeKind rope = RopeKind::kNone;
  int32_t rope_dims = 0;
  const float* rope_table = nullptr;  // (context, rope_dims / 2, {cos, sin})
  QkNorm qk_norm = QkNorm::kNone;
  Norm q_norm;
  Norm k_norm;
  const float* sinks = nullptr;  // (n_heads) or null
  // Host memory, or null; if set, `k`, `v`, `clip` and `qk_norm` are unused. CPU only.
  const LatentHeads* latent = nullptr;
};

/// The state of one layer's mixer in one session, before and after the rows of an operation.
struct MixerState {
  const float* from = nullptr;  // null: zeros, as a text begins
  float* to = nullptr;          // not the same memory
};

/// A token mixer with a state, between its input and its output matrices. Latches
/// MOE_ERR_NON_FINITE if a state is NaN or infinite after one of the rows.
struct MixerOp {
  int32_t n_rows = 0;
  const BatchRow* rows = nullptr;  // host memory; rows of a session are consecutive, ascending
  int32_t layer = -1;              // for messages
  int32_t d_model = 0;
  MixerConfig config;
  const float* in = nullptr;  // (n_rows, ld_in)
  int64_t ld_in = 0;
  float* out = nullptr;  // (n_rows, ld_out)
  int64_t ld_out = 0;
  const float* const* vectors = nullptr;  // host memory; MixerArgs::vectors
  const MixerState* states = nullptr;     // host memory, indexed by BatchRow::session
};

/// A router's weights. Unused ones are empty.
struct RouterWeightsView {
  Matrix scores;                     // RouterScores::kLinear: (n_experts, d)
  const float* bias = nullptr;       // (n_experts)
  Matrix proj;                       // cosine: (d_e, d)
  const float* proj_bias = nullptr;  // (d_e)
  Matrix embedding;                  // cosine: (n_experts, d_e)
  // cosine: (n_experts) row_length() of each row of `embedding`, in memory of the device,
  // or null: every call measures them.
  const float* embedding_length = nullptr;
  const float* selection_bias = nullptr;  // (n_experts) or null
  const int32_t* table = nullptr;         // hash: (vocab)
};

/// The input of a layer's router.
struct RoutedTokens {
  int32_t layer = -1;
  int32_t position = 0;           // of the first row in its text
  int32_t d = 0;                  // d_model / n_subheads
  const float* states = nullptr;  // (n_tokens, d)
};

/// Sees the choices of a layer before they are used, and may change them: experts in range,
/// distinct per token, finite weights, 1..max_k of them. kept is null; scores are read-only, and
/// null if the router has none.
struct RoutingHook {
  void (*call)(void* user, const RoutedTokens& tokens, Routing* routing) = nullptr;
  void* user = nullptr;
};

/// Statistics of one layer since the last reset (host memory). Null pointers are not counted; of a
/// dense FFN, activations alone are.
struct RoutingStats {
  uint64_t* tokens_per_expert = nullptr;  // (n_experts) pairs served
  uint64_t* experts_per_token =
      nullptr;  // (n_experts + 1) histogram of experts served per (sub-)token
  uint64_t n_tokens = 0;
  uint64_t n_dropped = 0;   // pairs refused by capacity
  uint64_t n_positive = 0;  // act(gate), or act(up) without a gate, above 0
  uint64_t n_activations = 0;
  uint64_t n_skipped = 0;          // pairs whose expert was not in memory: RouterConfig::resident
  double skipped_probability = 0;  // their total probability
};

/// The feed-forward part of a layer: y (+)= scale * FFN(norm(x)). With experts: head, routing,
/// experts, ordered sum (ascending expert index), merge, shared expert. n_experts 0: a dense FFN;
/// only `shared` is computed, and y is (n_rows, shared->down.rows). y may be x.
struct FfnOp {
  const float* x = nullptr;  // (n_rows, d_model)
  float* y = nullptr;        // (n_rows, d_model)
  int32_t n_rows = 0;
  int32_t d_model = 0;
  bool accumulate = false;
  float scale = 1;
  Norm norm;  // before the layer
  // A dense FFN's: of the normed x, for one matrix each; kNone: it reads the normed x.
  Norm gate_in_norm, up_in_norm;
  ActivationConfig act;

  int32_t n_experts = 0;
  int32_t n_subheads = 1;
  Matrix head;  // MH-MoE: (d_model, d_model) or empty
  const float* head_bias = nullptr;
  Matrix merge;
  const float* merge_bias = nullptr;
  RouterConfig router;
  RouterWeightsView router_weights;
  Norm router_norm;  // of x, for the router alone; kNone: it reads what the experts read
  const BatchRow* rows = nullptr;  // host memory; token ids for hash routers, sessions for capacity
  ExpertSource* experts = nullptr;
  const float* expert_scale = nullptr;  // (n_experts) or null: factors of the experts' outputs

  const Ffn* shared = nullptr;    // shared expert, or the dense FFN; host memory
  Matrix shared_gate;             // (1, d_model) or empty
  RoutingStats* stats = nullptr;  // host memory or null
  // In place of `stats` those of each BatchRow::session, host memory; null: of none. Only if
  // uses_host_memory().
  RoutingStats* const* session_stats = nullptr;
  Routing* routing_out = nullptr;  // host memory to fill (may have null members), or null
  int32_t layer = -1;              // for the hook
  RoutingHook hook;                // only if uses_host_memory()
};

/// Largest sizes for a stream's scratch memory.
struct StreamShape {
  int32_t max_rows = 0;  // rows of one call
  int32_t d_model = 0;
  int32_t max_d_in = 0;  // widest input of any matrix (d_model, n_heads * head_dim, d_ff ...)
  int32_t max_d_ff = 0;  // widest inner width of any FFN
  int32_t max_experts = 0;
  int32_t max_subheads = 1;
  int32_t max_routed = 0;      // largest router_max_k (run-time overrides included: n_experts)
  int32_t max_own_routed = 0;  // largest router_max_k without overrides
  int32_t max_d_e = 0;         // cosine routers
  int32_t max_heads = 0;
  int32_t max_head_dim = 0;
  int32_t max_context = 0;
  int32_t vocab_size = 0;
};

/// Everything that a step's operations and arguments depend on, except tokens and positions. Steps
/// with equal keys are the same operations on the same memory; an empty key equals none.
struct StepKey {
  static constexpr int32_t kWords = 132;
  uint64_t words[kWords] = {};
  int32_t n = 0;
  /// At most kWords calls.
  void add(uint64_t word) { words[n++] = word; }
};

/// A device's per-session state: scratch, the latched error, the cancel flag.
struct Stream {
  std::atomic<bool> cancelled{false};  // set from any thread; operations then do nothing
  Status latched;                      // first fault since the last sync()
  ExpertStats experts;                 // of its operations
};

class Device {
 public:
  virtual const char* name() const = 0;  // "cpu (avx512vnni)"

  // Memory. Host and device memory are the same on the CPU; alloc gives 64-byte alignment.
  virtual Status alloc(size_t bytes, void** out) = 0;
  virtual void free(void* memory, size_t bytes) = 0;
  virtual Status upload(void* device, const void* host, size_t bytes) = 0;
  virtual Status download(void* host, const void* device, size_t bytes) = 0;
  /// True if host memory can be used as device memory: weights are then read or mapped in place.
  virtual bool uses_host_memory() const { return true; }

  /// Limit of all alloc() calls together; 0: none.
  virtual uint64_t memory_limit() const { return 0; }
  /// Destination of offloaded experts; null: the device has none. Host memory has none: the model
  /// then has an ExpertArena of its own.
  virtual ExpertMemory* expert_memory() { return nullptr; }

  virtual size_t stream_bytes(const StreamShape& shape) const = 0;
  /// Host memory of a stream, if that is not device memory.
  virtual size_t host_stream_bytes(const StreamShape&) const { return 0; }
  virtual Result<Stream*> open_stream(const StreamShape& shape) = 0;
  virtual void close_stream(Stream* stream) = 0;
  /// Waits; returns (and clears) the latched fault, or MOE_ERR_CANCELLED.
  virtual Status sync(Stream& stream) = 0;

  /// Offset of element `dim` of the key at `position`, in elements from the start of its KV head.
  /// kKeyBlock positions fill a block, and all blocks have the same layout. Values are stored in
  /// rows: position * head_dim + dim.
  virtual int64_t key_place(KvType, int32_t head_dim, int32_t position, int32_t dim) const {
    return int64_t{position} * head_dim + dim;
  }

  /// Calls part(user, begin, end) over n items of host memory, each about `work` multiply-adds, on
  /// the device's threads; parts may run concurrently.
  virtual void share(int64_t n, int64_t work, void (*part)(void* user, int64_t begin, int64_t end),
                     void* user) {
    (void)work;
    part(user, 0, n);
  }

  /// Begins a step: operations on `rows` (host memory, valid until end_step). False: the device has
  /// replayed a recorded step with this key, and the caller only calls sync().
  virtual bool begin_step(Stream&, const BatchRow* rows, int32_t n_rows, const StepKey& key) {
    (void)rows, (void)n_rows, (void)key;
    return true;
  }
  /// Ends a step. False: it was not run and must be begun again.
  virtual bool end_step(Stream&) { return true; }

  // Operations.
  /// x[r] = multiplier * table[rows[r].token] (+ positions[rows[r].position]); `positions` may be
  /// empty.
  virtual void embed(Stream& s, const Matrix& table, const Matrix& positions, const BatchRow* rows,
                     int32_t n_rows, float multiplier, float* x) = 0;
  /// x[r] = multiplier * row rows[r].token of a table with d columns that is not in memory. Only
  /// devices that use host memory are asked to.
  virtual void embed_from(Stream&, RowSource& table, int32_t d, const BatchRow* rows,
                          int32_t n_rows, float multiplier, float* x) {
    (void)table, (void)d, (void)rows, (void)n_rows, (void)multiplier, (void)x;
  }
  virtual void norm(Stream& s, const NormOp& op) = 0;
  virtual void cap(Stream& s, const CapOp& op) = 0;
  virtual void gate(Stream& s, const GateOp& op) = 0;
  /// False: a model cannot be opened on the device if matrices have a rotation, or if its layers
  /// have a multiplier, a norm for values, the router or a single matrix's input, factors of
  /// experts, embeddings of their own, or see another layer's keys. scale() and activate() are then
  /// not called.
  virtual bool has_layer_extras() const { return false; }
  virtual void scale(Stream&, const ScaleOp& op) { (void)op; }
  virtual void activate(Stream&, const ActivateOp& op) { (void)op; }
  virtual void linear(Stream& s, const LinearOp& op) = 0;
  virtual void attention(Stream& s, const AttentionOp& op) = 0;
  virtual void ffn(Stream& s, const FfnOp& op) = 0;
  /// False: a model with this mixer cannot be opened on the device, and mix() is not called.
  virtual bool can_mix(MixerKind) const { return false; }
  virtual void mix(Stream&, const MixerOp& op) { (void)op; }

  // True if rows of logits may remain on a device with its own memory for sampling.
  virtual bool can_sample() const { return false; }
  virtual void sample(Stream&, const SampleOp& op) { (void)op; }
  /// The step's latest sample() report on a row; after sync(), until the next step.
  virtual SampleReport sampled(Stream&, int32_t row) {
    (void)row;
    return {};
  }

 protected:
  ~Device() = default;
};

}  // namespace moe
