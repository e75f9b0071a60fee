// SPDX-License-Identifier: MIT
// Logits after a session's last token that remain on the device, and sampling from them.

#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {

Status StoredReport::init(int32_t vocab_size) {
  const auto n_spans = static_cast<size_t>(sample_spans(vocab_size));
  MOE_TRY(candidates.resize(static_cast<size_t>(kMaxCandidates)));
  MOE_TRY(sums.resize(n_spans));
  return weights.resize(n_spans);
}

uint64_t StoredReport::bytes(int32_t vocab_size) {
  return sizeof(TokenCandidate) * static_cast<uint64_t>(kMaxCandidates) +
         2 * sizeof(uint64_t) * static_cast<uint64_t>(sample_spans(vocab_size));
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

namespace {

// Reads logits from `first` on of the row on the device.
Status read_device_logits(SessionState& state, size_t first, size_t n, float* to) {
  const Status status =
      state.device.download(to, state.work().device_logits + first, n * sizeof(float));
  state.poisoned = state.poisoned || status.code() == MOE_ERR_DEVICE;
  return status;
}

}  // namespace

Status read_logits(SessionState& state, float* to) {
  const std::span<float> logits = state.logits.span();
  if (state.on_device) MOE_TRY(read_device_logits(state, 0, logits.size(), logits.data()));
  MOE_TRY(check_finite({logits.data(), logits.size()}));
  std::memmove(to, logits.data(), logits.size() * sizeof(float));
  return {};
}

namespace {

// Lets the device analyse the stored row again, for sampling parameters unknown to the step.
Status report_stored_row(SessionState& state) {
  float* const no_copy = nullptr;
  const int32_t vocab_size = state.model.config().vocab_size;
  const SampleOp op{state.work().device_logits, 1, vocab_size, &state.spec, &no_copy};
  Status status;
  bool again = true;
  while (again) {
    state.device.sample(state.stream(), op);
    status = state.device.sync(state.stream());
    again = status.code() == MOE_ERR_CANCELLED && state.call.load() != SessionState::kCancelled;
    if (again) state.stream().cancelled.store(false);  // meant for an earlier call
  }
  state.poisoned = state.poisoned || status.code() == MOE_ERR_DEVICE;
  MOE_TRY(status);
  state.report.take(state.spec, state.device.sampled(state.stream(), 0));
  return {};
}

Status sample_on_device(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                        TokenLogprob* top, size_t n_top, bool* enough) {
  if (!(state.report.spec == state.spec)) MOE_TRY(report_stored_row(state));
  const LogitReader row{[](void* user, size_t first, size_t n, float* to) {
                          return read_device_logits(*static_cast<SessionState*>(user), first, n,
                                                    to);
                        },
                        &state};
  return state.workspace->sampler.sample(config, state.report.values, row,
                                         static_cast<uint64_t>(state.position()), out, top, n_top,
                                         enough);
}

}  // namespace

Status sample_next(SessionState& state, const SamplingConfig& config, TokenLogprob* out,
                   TokenLogprob* top, size_t n_top) {
  set_sample_spec(state, config, n_top);
  const PassLease lease(state);
  MOE_TRY(lease.status());
  MOE_TRY(recall_logits(state));
  if (state.on_device && wants_anything(state.spec)) {
    bool enough = false;
    MOE_TRY(sample_on_device(state, config, out, top, n_top, &enough));
    if (enough) return {};
  }
  if (state.on_device) {
    MOE_TRY(read_logits(state, state.logits.data()));
    state.on_device = false;
  }
  return state.workspace->sampler.sample(config, state.logits.span(), state.tokens.span(),
                                         static_cast<uint64_t>(state.position()), out, top, n_top);
}

void set_sample_spec(SessionState& state, const SamplingConfig& config, size_t n_top) {
  state.spec = {};
  if (!state.logits_stay) return;
  (void)sample_spec(config, n_top, state.model.config().vocab_size, &state.spec);
}

}  // namespace moe
