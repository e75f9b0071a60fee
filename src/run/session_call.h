// SPDX-License-Identifier: MIT
#pragma once
// Calls of a session, and their steps. Private to src/run.

#include "src/run/call_state.h"
#include "src/run/forward.h"
#include "src/run/sampler.h"

namespace moe {

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
  static CallState& of(const Session& session);

 private:
  SessionState& state_;
  Status status_;
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

// The caller of all functions below holds a SessionCall.

/// MOE_ERR_CANCELLED if the call has been cancelled.
Status check_cancel(const SessionState& state);
/// Makes the session ask for another chunk; on failure nothing changes.
Status set_demand(SessionState& state, const PassDemand& demand);
/// Forgets the tokens from `position` on, which is at most the session's.
void rewind_to(SessionState& state, size_t position);
Status check_tokens(const SessionState& state, std::span<const int32_t> tokens);
/// The same for a session that has `used` tokens.
Status check_tokens(const SessionState& state, std::span<const int32_t> tokens, int32_t used);
Status check_ids(const SessionState& state, std::span<const int32_t> tokens);
/// MOE_ERR_MEMORY if the call must be one pass, as an encoder's and one with an expert capacity,
/// and the borrowed workspace is too small for it.
Status check_one_pass(const SessionState& state, size_t n_tokens);
/// Runs the forward pass without advancing.
Status run_batch(SessionState& lead, std::span<BatchPart> parts);
/// Leaves the last token's logits with the session. sink.take may be null, otherwise it receives
/// every row; `last`: null, or the destination of the last row. If one of them fails, the row's
/// chunk is not part of the session.
Status eval_tokens(SessionState& state, std::span<const int32_t> tokens, const LogitSink& sink,
                   float* last = nullptr);
/// Appends tokens and passes the log-probability of each target to the sink; tokens[first] predicts
/// the first target. Leaves the last token's logits unless they predict a target.
Status eval_scored(SessionState& state, std::span<const int32_t> tokens, size_t first,
                   std::span<const int32_t> targets, const ScoreSink& sink);
/// Makes sure that the mixers have the state after the first `position` tokens of the session, by
/// evaluating those after the nearest one again, in the work memory of `lead`.
Status reach_state(SessionState& lead, SessionState& state, int32_t position);
/// Keeps the mixers' state after the last token for longer: a turn ends here.
void keep_state(SessionState& state);
/// Recomputes the last token's logits if a rewind or a failed call has dropped them.
Status recall_logits(SessionState& state);
/// Makes later steps report what this sampling needs.
void set_sample_spec(SessionState& state, const SamplingConfig& config, size_t n_top);
/// Copies logits that are on the device to the host, where they are from now on.
Status fetch_logits(SessionState& state);
/// Copies the last token's logits; MOE_ERR_NON_FINITE, with nothing copied, if they are not finite.
Status read_logits(SessionState& state, float* to);
/// The log-probability of `token` after the last one.
Status score_next(SessionState& state, int32_t token, double* logprob);
Status sample_next(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                   TokenLogprob* top, size_t n_top);

// Host memory that calls allocate and free, at most, measured by the code that lays it out.

uint64_t encode_bytes(const Device& device, const ModelConfig& config);
uint64_t generating_bytes(const ModelConfig& config);
uint64_t saving_bytes(Device& device, const ModelConfig& config, KvType kv);
uint64_t scoring_bytes(int32_t context);
/// With at most `beam` hypotheses, and the texts found.
uint64_t search_bytes(const ModelConfig& config, int32_t beam, int32_t context);
/// A session's own host memory; `options` from resolve_options().
uint64_t session_host_bytes(const Model& model, const SessionOptions& options);

}  // namespace moe
