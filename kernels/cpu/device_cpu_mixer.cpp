// SPDX-License-Identifier: MIT
// Token mixers on the CPU: the rows of each session in order, shared between threads by units.
#include <atomic>

#include "kernels/cpu/device_cpu_impl.h"
#include "kernels/mixers/table.h"

namespace moe {
namespace {

constexpr int64_t kFinishWork = 16;  // multiply-adds of a number of the output

int32_t rows_of_session(const MixerOp& op, int32_t first) {
  int32_t end = first + 1;
  while (end < op.n_rows && op.rows[end].session == op.rows[first].session) ++end;
  return end - first;
}

// Rows [first, first + n) of one session. Returns the first one after which its state is not
// finite.
int32_t mix_session(const CpuRuntime& rt, const MixerOp& op, int32_t first, int32_t n) {
  const MixerInfo& info = mixer_info(op.config);
  const MixerState& state = op.states[op.rows[first].session];
  MixerArgs args;
  args.config = op.config;
  args.d_model = op.d_model;
  args.n_rows = n;
  args.in = op.in + first * op.ld_in;
  args.ld_in = op.ld_in;
  args.out = op.out + first * op.ld_out;
  args.ld_out = op.ld_out;
  args.vectors = op.vectors;
  args.from = state.from;
  args.to = state.to;
  std::atomic<int32_t> bad{kMixerFinite};
  const int64_t work = info.work(op.config, op.d_model) * n;
  const auto run = [&](int64_t begin, int64_t end, int) {
    MixerArgs part = args;
    part.begin = begin;
    part.end = end;
    const int32_t row = rt.kernels.mix(part);
    int32_t least = bad.load(std::memory_order_relaxed);
    while (row < least && !bad.compare_exchange_weak(least, row)) {
    }
  };
  rt.for_range(info.units(op.config, op.d_model), work, run);
  if (info.finishes) {
    rt.for_range(n, kFinishWork * op.ld_out, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        rt.kernels.finish_mixed(args, static_cast<int32_t>(r));
      }
    });
  }
  return bad.load();
}

}  // namespace

void cpu_mix(const CpuRuntime& rt, CpuStream& s, const MixerOp& op) {
  if constexpr (!kHasMixers) return;
  for (int32_t first = 0; first < op.n_rows;) {
    const int32_t n = rows_of_session(op, first);
    const int32_t bad = mix_session(rt, op, first, n);
    if (bad != kMixerFinite) {
      s.latch(mixer_not_finite(op.config.kind, op.layer, op.rows[first + bad].position));
    }
    first += n;
  }
}

}  // namespace moe
