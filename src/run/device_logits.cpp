// SPDX-License-Identifier: MIT
// Logits after a session's last token that remain on the device, and sampling from them.

#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {

void StoredReport::lay_out(Carver& c, int32_t vocab_size) {
  c.take(&candidates, kMaxCandidates);
  c.take(&sums, sample_spans(vocab_size));
  c.take(&weights, sample_spans(vocab_size));
}

void StoredReport::take(const SampleSpec& asked, const SampleReport& found) {
  spec = asked;
  if (!wants_anything(asked)) return;
  values = found;
  values.candidates = candidates.data();
  values.sums = sums.data();
  values.weights = weights.data();
  if (found.bad >= 0) return;
  const auto n = static_cast<size_t>(found.n_candidates);
  std::memcpy(candidates.data(), found.candidates, n * sizeof(TokenCandidate));
  std::memcpy(sums.data(), found.sums, sums.size() * sizeof(uint64_t));
  std::memcpy(weights.data(), found.weights, weights.size() * sizeof(uint64_t));
}

void LastLogits::lay_out(Carver& c, const Device& device, const ModelConfig& config) {
  c.take(&row_, config.n_outputs());
  if (device.can_sample()) report.lay_out(c, config.vocab_size);
}

namespace {

// Reads logits from `first` on of the row on the device.
Status read_device_logits(SessionState& state, size_t first, size_t n, float* to) {
  const Status status =
      state.device.download(to, state.work().device_logits + first, n * sizeof(float));
  state.call.poisoned = state.call.poisoned || status.code() == MOE_ERR_DEVICE;
  return status;
}

}  // namespace

Status read_logits(SessionState& state, float* to) {
  const std::span<float> logits = state.logits.row();
  if (state.logits.on_device()) MOE_TRY(read_device_logits(state, 0, logits.size(), logits.data()));
  MOE_TRY(check_finite({logits.data(), logits.size()}));
  std::memmove(to, logits.data(), logits.size() * sizeof(float));
  return {};
}

Status fetch_logits(SessionState& state) {
  if (!state.logits.on_device()) return {};
  MOE_TRY(read_logits(state, state.logits.row().data()));
  state.logits.fetched();
  return {};
}

namespace {

// Lets the device analyse the stored row again, for sampling parameters unknown to the step.
Status report_stored_row(SessionState& state) {
  float* const no_copy = nullptr;
  const int32_t vocab_size = state.model.config().vocab_size;
  const SampleOp op{state.work().device_logits, 1, vocab_size, &state.logits.spec, &no_copy};
  Status status;
  bool again = true;
  while (again) {
    state.device.sample(state.stream(), op);
    status = state.device.sync(state.stream());
    again = status.code() == MOE_ERR_CANCELLED && !state.call.cancelled();
    if (again) state.stream().cancelled.store(false);  // meant for an earlier call
  }
  state.call.poisoned = state.call.poisoned || status.code() == MOE_ERR_DEVICE;
  MOE_TRY(status);
  state.logits.report.take(state.logits.spec, state.device.sampled(state.stream(), 0));
  return {};
}

Status sample_on_device(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                        TokenLogprob* top, size_t n_top, bool* enough) {
  if (!(state.logits.report.spec == state.logits.spec)) MOE_TRY(report_stored_row(state));
  const LogitReader row{[](void* user, size_t first, size_t n, float* to) {
                          return read_device_logits(*static_cast<SessionState*>(user), first, n,
                                                    to);
                        },
                        &state};
  return state.sampler().sample(config, state.logits.report.values, row,
                                static_cast<uint64_t>(state.position()), out, top, n_top, enough);
}

}  // namespace

Status score_next(SessionState& state, int32_t token, double* logprob) {
  const std::span<float> row = state.logits.row();
  MOE_TRY(recall_logits(state));
  MOE_TRY(read_logits(state, row.data()));
  return log_probability(row, token, logprob);
}

Status sample_next(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                   TokenLogprob* top, size_t n_top) {
  set_sample_spec(state, config, n_top);
  const PassLease lease(state);
  MOE_TRY(lease.status());
  MOE_TRY(recall_logits(state));
  if (state.logits.on_device() && wants_anything(state.logits.spec)) {
    bool enough = false;
    MOE_TRY(sample_on_device(state, config, out, top, n_top, &enough));
    if (enough) return {};
  }
  MOE_TRY(fetch_logits(state));
  return state.sampler().sample(config, state.logits.row(), state.tokens.span(),
                                static_cast<uint64_t>(state.position()), out, top, n_top);
}

void set_sample_spec(SessionState& state, const SamplingConfig& config, size_t n_top) {
  state.logits.spec = {};
  if (!state.logits.stay) return;
  (void)sample_spec(config, n_top, state.model.config().vocab_size, &state.logits.spec);
}

}  // namespace moe
