// SPDX-License-Identifier: MIT
// Groups the experts of an MoE layer that are computed together, and orders the groups.

#include <algorithm>

#include "kernels/cpu/device_cpu_ffn.h"

namespace moe {
namespace {

// Experts computed at once: at most pair_chunk rows in total.
struct Wave {
  Segment segments[kWaveExperts];
  int32_t n = 0;
  int32_t n_rows = 0;
};

bool is_full(const FfnCall& call, const Wave& wave) {
  return wave.n == kWaveExperts || wave.n_rows == call.s.pair_chunk;
}

// Adds `n` pairs of one expert from `pair` on.
void add(const FfnCall& call, int32_t index, const Expert& expert, int32_t pair, int32_t n,
         int32_t out, Wave* wave) {
  Segment& segment = wave->segments[wave->n++];
  segment.expert = expert;
  segment.index = index;
  segment.first = wave->n_rows;
  segment.out = out;
  segment.n = n;
  segment.x = call.subs;
  segment.ld_x = call.d_in;
  segment.tokens = call.s.pair_token + pair;
  segment.weights = call.s.pair_weight + pair;
  wave->n_rows += n;
}

// False if it is not in memory and others can be computed meanwhile, or after a fault.
bool acquire(FfnCall& call, int32_t index, bool wait, Expert* expert) {
  CpuStream& s = call.s;
  const ExpertWait how{wait ? ExpertWait::kRoom : ExpertWait::kReady, &s.cancelled, &s.experts};
  const Status status = call.op.experts->acquire(index, how, expert);
  if (!status.ok() && (wait || status.code() != MOE_ERR_BUDGET)) s.latch(status);
  return status.ok();
}

// In ascending order, combining outputs immediately. Deadlock rule: only a wave's first expert is
// waited for, with no other acquired; the wave ends at the next miss. An expert with more rows than
// a wave is held until its last wave.
void run_in_order(FfnCall& call, int32_t n_chosen) {
  CpuStream& s = call.s;
  Expert expert;
  bool held = false;  // chosen[at] is acquired
  int32_t at = 0;
  int32_t pair = 0;
  while (at < n_chosen && s.live()) {
    Wave wave;
    const int32_t first = at;
    while (at < n_chosen && !is_full(call, wave)) {
      const int32_t e = s.chosen[at];
      held = held || acquire(call, e, wave.n == 0, &expert);
      if (!held) break;
      const int32_t n = std::min(s.pair_begin[e + 1] - pair, s.pair_chunk - wave.n_rows);
      add(call, e, expert, pair, n, wave.n_rows, &wave);
      pair += n;
      held = pair < s.pair_begin[e + 1];
      if (!held) ++at;
    }
    if (s.live()) compute_experts(call, wave.segments, wave.n, true);
    for (int32_t i = first; i < at; ++i) call.op.experts->release(s.chosen[i]);
  }
  if (held) call.op.experts->release(s.chosen[at++]);
  call.op.experts->cancel_prefetch(s.chosen + at, n_chosen - at);
}

// For few pairs: computes experts in memory first, then the shared one, the others as they arrive.
// Outputs are combined in order once all are computed.
void run_as_they_come(FfnCall& call, int32_t n_chosen) {
  CpuStream& s = call.s;
  const int32_t n_pairs = s.pair_begin[call.op.n_experts];
  bool shared_later = call.op.shared != nullptr && n_pairs + call.op.n_rows <= s.pair_chunk;
  int32_t* left = s.chosen;
  int32_t n_left = n_chosen;
  while (n_left > 0 && s.live()) {
    Wave wave;
    const auto take = [&](int32_t e, bool wait) {
      Expert expert;
      if (is_full(call, wave) || !s.live() || !acquire(call, e, wait, &expert)) return false;
      const int32_t pair = s.pair_begin[e];
      add(call, e, expert, pair, s.pair_begin[e + 1] - pair, pair, &wave);
      return true;
    };
    int32_t* end = std::remove_if(left, left + n_left, [&](int32_t e) { return take(e, false); });
    if (wave.n == 0 && shared_later) {
      compute_shared(call, n_pairs);
      shared_later = false;
      continue;
    }
    if (wave.n == 0 && s.live() && take(left[0], true)) end = std::copy(left + 1, end, left);
    n_left = static_cast<int32_t>(end - left);
    if (s.live()) compute_experts(call, wave.segments, wave.n, false);
    for (int32_t i = 0; i < wave.n; ++i) call.op.experts->release(wave.segments[i].index);
  }
  call.op.experts->cancel_prefetch(left, n_left);
  if (s.live()) combine_pairs(call);
}

}  // namespace

void run_experts(FfnCall& call) {
  CpuStream& s = call.s;
  const FfnOp& op = call.op;
  int32_t n_chosen = 0;
  for (int32_t e = 0; e < op.n_experts; ++e) {
    if (s.pair_begin[e] < s.pair_begin[e + 1]) s.chosen[n_chosen++] = e;
  }
  op.experts->prefetch(s.chosen, n_chosen, &s.experts);
  std::fill_n(s.routed, static_cast<int64_t>(call.n_tokens) * call.d_in, 0.0f);
  const bool fits = s.pair_begin[op.n_experts] <= s.pair_chunk;
  if (fits && !op.experts->all_stay()) return run_as_they_come(call, n_chosen);
  run_in_order(call, n_chosen);
}

}  // namespace moe
