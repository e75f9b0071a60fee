// SPDX-License-Identifier: MIT
#pragma once
// State of a session. Private to src/run.

#include <atomic>

#include "src/run/forward.h"
#include "src/run/kv_cache.h"
#include "src/run/memory.h"
#include "src/run/rope_tables.h"
#include "src/run/routing_counters.h"
#include "src/run/session.h"
#include "src/run/workspace.h"

namespace moe {

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
  SessionState(Model& m, WorkspacePool& p, PoolMember& in_pool, const SessionOptions& o,
               const Allocator& a)
      : model(m),
        device(m.device()),
        pool(p),
        options(o),
        member(in_pool),
        kv(a),
        rope(a),
        tokens(a),
        logits(a),
        report(a),
        routers(a),
        staged_routers(a),
        counters(a) {}
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  Status init(const Allocator& allocator);
  /// Makes the session ask for another chunk; on failure nothing changes.
  Status set_demand(const PassDemand& demand);
  /// Rows of its next pass, at most.
  int32_t chunk() const { return member.demand.chunk(pool.automatic_rows()); }
  /// Rows of the pass in progress. The workspace has at least a chunk's.
  int32_t pass_rows() const { return std::min(chunk(), workspace->shape.rows); }
  WorkMemory& work() const { return workspace->work; }
  Stream& stream() const { return *workspace->stream; }
  int32_t position() const { return static_cast<int32_t>(tokens.size()); }
  bool keeps_latent() const { return options.kv == KvType::kLatent; }
  bool own_routing() const { return overridden || counting || hook.call != nullptr; }
  /// True if the current call has been cancelled.
  bool cancel_asked() const { return call.load(std::memory_order_relaxed) == kCancelled; }

  Model& model;
  Device& device;
  WorkspacePool& pool;
  SessionOptions options;  // every default filled in
  uint64_t number = 0;     // unique per session and router setting within the model
  PoolMember& member;

  KvCache kv;
  RopeTables rope;
  /// Null between passes, unless the session keeps `own`.
  Workspace* workspace = nullptr;
  Box<Workspace>
      own;  // on a device with its own memory, which records steps and keeps logits in it
  ExpertStats experts;  // of all passes but one in progress

  int32_t n_source = 0;   // source tokens that the cross attention sees; 0: none was read
  Array<int32_t> tokens;  // room for the whole context
  Array<float> logits;    // (n_outputs) after the last token, when has_logits
  bool has_logits = false;
  bool on_device = false;    // the logits are in work().device_logits instead
  bool logits_stay = false;  // the logits of a single token remain on the device
  SampleSpec spec;           // what steps request for a stored row: the latest sampling parameters
  StoredReport report;

  Array<RouterConfig> routers;  // (n_layers) in force; dense layers: unused
  Array<RouterConfig> staged_routers;
  bool overridden = false;
  bool has_capacity = false;  // some active router has a capacity
  RoutingCounters counters;
  bool counting = false;
  RoutingHook hook;

  enum CallState : int { kIdle, kRunning, kCancelled, kMoving };
  std::atomic<int> call{kIdle};
  std::atomic<int> cancels{0};            // calls of cancel() in progress
  std::atomic<bool> stop{false};          // set by cancel(): ends a wait for a workspace
  std::atomic<Stream*> running{nullptr};  // of the workspace, for cancel()
  /// The sessions of a group call that this one leads: a cancel of any of them ends it.
  std::span<Session* const> group;
  std::atomic<SessionState*> lead{nullptr};  // of a group call of others; null: itself
  bool poisoned = false;
};

/// Borrows a workspace for the session, or does nothing if it has one: for a pass, or as long as
/// results are read from it. Callbacks that may call the library run without one where possible.
class PassLease {
 public:
  explicit PassLease(SessionState& state);
  PassLease(const PassLease&) = delete;
  PassLease& operator=(const PassLease&) = delete;
  ~PassLease();
  const Status& status() const { return status_; }

 private:
  SessionState& state_;
  bool borrowed_ = false;
  Status status_;
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
/// Calls of cancel() that may have seen the stream of the session, or of the one that leads its
/// group. They take a few instructions.
void wait_for_cancels(const SessionState& state);

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
/// MOE_ERR_MEMORY if the call must be one pass, as an encoder's and one with an expert capacity,
/// and the borrowed workspace is too small for it.
Status check_one_pass(const SessionState& state, size_t n_tokens);
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
void set_sample_spec(SessionState& state, const SamplingConfig& config, size_t n_top);
/// Copies the last token's logits; MOE_ERR_NON_FINITE, with nothing copied, if they are not finite.
Status read_logits(SessionState& state, float* to);
Status sample_next(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                   TokenLogprob* top, size_t n_top);

}  // namespace moe
