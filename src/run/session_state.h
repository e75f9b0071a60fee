// SPDX-License-Identifier: MIT
#pragma once
// State of a session. Private to src/run.

#include <atomic>

#include "src/run/forward.h"
#include "src/run/kv_cache.h"
#include "src/run/memory.h"
#include "src/run/rope_tables.h"
#include "src/run/routing_counters.h"
#include "src/run/sampler.h"
#include "src/run/session.h"

namespace moe {

/// Device memory of a forward pass of up to `chunk` rows, and the host lists that describe it.
struct WorkMemory {
  explicit WorkMemory(const Allocator& a) : rows(a), caches(a), parts(a) {}
  Status init(Device& device, const ModelConfig& config, int32_t chunk, KvType kv);
  static bool device_bytes(const Device& device, const ModelConfig& config, int32_t chunk,
                           KvType kv, uint64_t* out);
  static uint64_t host_bytes(int32_t chunk);
  void lay_out(Carver& c, const Device& device, const ModelConfig& config, int32_t chunk,
               KvType kv);
  void find_late_rows(const Device& device, int32_t n_outputs);

  float* x = nullptr;         // (chunk, d_model) the residual stream
  float* q = nullptr;         // (chunk, widest n_heads * head_dim)
  float* k = nullptr;         // (chunk, widest n_kv_heads * head_dim)
  float* v = nullptr;         // (chunk, widest n_kv_heads * head_dim)
  float* latent = nullptr;    // (chunk, widest latent + rope.dims); null when no layer has one
  float* q_latent = nullptr;  // (chunk, widest q_latent); the same
  // kLatent: scratch of LatentHeads.
  float* wide_key = nullptr;  // (wide_rows, widest latent + rope.dims)
  float* wide_q = nullptr;    // (wide_rows, widest n_heads * (latent + rope.dims))
  float* seen = nullptr;      // (wide_rows, widest n_heads * latent)
  int32_t wide_rows = 0;
  float* mixed = nullptr;   // (chunk, widest n_heads * head_dim) out of attention
  float* branch = nullptr;  // (chunk, d_model) normed, or to be normed; null if unused
  float* logits = nullptr;  // (logit_rows, n_outputs)
  int32_t logit_rows = 0;
  float* late_logits = nullptr;  // (late_rows, n_outputs) in the layers' scratch; on a device with
  int32_t late_rows = 0;         // its own memory the same as `logits`
  float* device_logits =
      nullptr;                // (vocab_size) the session's own row; null unless Device::can_sample
  Array<BatchRow> rows;       // (chunk)
  Array<KvCacheView> caches;  // (chunk) one per part
  Array<BatchPart> parts;     // (chunk)
  DeviceBuffer memory;
};

/// A copy of the device's report on the session's stored row, and the request for it.
struct StoredReport {
  explicit StoredReport(const Allocator& a) : candidates(a), sums(a), weights(a) {}
  Status init(int32_t vocab_size);
  static uint64_t bytes(int32_t vocab_size);
  void take(const SampleSpec& asked, const SampleReport& found);

  SampleSpec spec;
  SampleReport values;  // points into the arrays
  Array<TokenCandidate> candidates;
  Array<uint64_t> sums;
  Array<uint64_t> weights;
};

struct SessionState {
  SessionState(const Model& m, const SessionOptions& o, const Allocator& a)
      : model(m),
        device(m.device()),
        options(o),
        kv(a),
        rope(a),
        work(a),
        tokens(a),
        logits(a),
        report(a),
        sampler(a),
        routers(a),
        staged_routers(a),
        counters(a) {}
  ~SessionState() {
    if (stream != nullptr) device.close_stream(stream);
  }
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  Status init(const Allocator& allocator);
  /// Replaces the work memory by one for `chunk` rows; on failure nothing changes. The old one
  /// exists until the new one does: the memory cap counts both.
  Status set_chunk(int32_t chunk);
  int32_t position() const { return static_cast<int32_t>(tokens.size()); }
  bool keeps_latent() const { return kLatentCaches && options.kv == KvType::kLatent; }
  bool own_routing() const { return overridden || counting || hook.call != nullptr; }
  /// True if the current call has been cancelled.
  bool cancel_asked() const { return call.load(std::memory_order_relaxed) == kCancelled; }

  const Model& model;
  Device& device;
  SessionOptions options;  // every default filled in
  uint64_t bytes = 0;
  uint64_t number = 0;  // unique per session and router setting within the model

  KvCache kv;
  RopeTables rope;
  WorkMemory work;
  Stream* stream = nullptr;

  int32_t n_source = 0;   // source tokens that the cross attention sees; 0: none was read
  Array<int32_t> tokens;  // room for the whole context
  Array<float> logits;    // (n_outputs) after the last token, when has_logits
  bool has_logits = false;
  bool on_device = false;    // the logits are in work.device_logits instead
  bool logits_stay = false;  // the logits of a single token remain on the device
  SampleSpec spec;           // what steps request for a stored row: the latest sampling parameters
  StoredReport report;
  Sampler sampler;

  Array<RouterConfig> routers;  // (n_layers) in force; dense layers: unused
  Array<RouterConfig> staged_routers;
  bool overridden = false;
  bool has_capacity = false;  // some active router has a capacity
  RoutingCounters counters;
  bool counting = false;
  RoutingHook hook;

  enum CallState : int { kIdle, kRunning, kCancelled, kMoving };
  std::atomic<int> call{kIdle};
  std::atomic<int> cancels{0};  // calls of cancel() in progress
  /// The sessions of a group call that this one leads: a cancel of any of them ends it.
  std::span<Session* const> group;
  bool poisoned = false;
};

/// Marks a session as used by this thread during its lifetime; not ok() if the session is in use,
/// or poisoned and `heal` is false.
class SessionCall {
 public:
  explicit SessionCall(Session& session, bool heal = false);
  ~SessionCall();
  SessionCall(const SessionCall&) = delete;
  SessionCall& operator=(const SessionCall&) = delete;
  const Status& status() const { return status_; }
  SessionState& state() const { return state_; }
  static SessionState& state_of(const Session& session) { return *session.state_; }

 private:
  SessionState& state_;
  Status status_;
};

Status begin_call(SessionState& state, bool heal);
void end_call(SessionState& state);

#ifdef MOE_NO_SAVE
inline constexpr bool kSavesSessions = false;
#else
inline constexpr bool kSavesSessions = true;
#endif

// Memory that a call of a session allocates and frees, at most.
uint64_t encode_bytes(const Device& device, const ModelConfig& config);
uint64_t saving_bytes(const ModelConfig& config, KvType kv);
uint64_t scoring_bytes(int32_t context);

// Steps of a call; the caller holds a SessionCall.
// position: at most the session's.
Status rewind_to(SessionState& state, size_t position);
Status check_tokens(const SessionState& state, std::span<const int32_t> tokens);
/// The same for a session that has `used` tokens.
Status check_tokens(const SessionState& state, std::span<const int32_t> tokens, int32_t used);
Status check_ids(const SessionState& state, std::span<const int32_t> tokens);
/// Runs the forward pass without advancing.
Status run_batch(SessionState& lead, std::span<BatchPart> parts);
/// Leaves the last token's logits in state.logits or on the device. sink.take may be null,
/// otherwise it receives every row; `last`: null, or the destination of the last row. If one of
/// them fails, the row's chunk is not part of the session.
Status eval_tokens(SessionState& state, std::span<const int32_t> tokens, const LogitSink& sink,
                   float* last = nullptr);
/// Appends tokens and passes the log-probability of each target to the sink; tokens[first] predicts
/// the first target. Leaves the last token's logits unless they predict a target.
Status eval_scored(SessionState& state, std::span<const int32_t> tokens, size_t first,
                   std::span<const int32_t> targets, const ScoreSink& sink);
/// Recomputes the last token's logits if a rewind or a failed call has dropped them.
Status recall_logits(SessionState& state);
/// Makes later steps report what this sampling needs.
void ask_for(SessionState& state, const SamplingConfig& config, size_t n_top);
/// Copies the last token's logits; MOE_ERR_NON_FINITE, with nothing copied, if they are not finite.
Status read_logits(SessionState& state, float* to);
Status sample_next(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                   TokenLogprob* top, size_t n_top);

}  // namespace moe
