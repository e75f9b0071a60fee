// SPDX-License-Identifier: MIT
#pragma once
// The CpuDevice class and the shared parts of its implementation (linear, attention, moe).

#include <algorithm>
#include <atomic>

#include "kernels/cpu/device_cpu.h"
#include "kernels/cpu/device_cpu_stream.h"
#include "kernels/cpu/table.h"
#include "kernels/device.h"
#include "src/base/checked.h"
#include "src/base/thread_pool.h"

namespace moe {

/// Regions of this many times parallel_work (4 MiB of ternary2) are balanced dynamically.
inline constexpr int64_t kSharedRegion = 512;
inline constexpr int64_t kTurn = 32;
/// Tiles per thread should be a multiple of this: kernels read four streams.
inline constexpr int64_t kTileGrain = 4;

/// One matrix product in a parallel region: tiles [0, n_tiles) of args.weight, and of paired.weight
/// if present; see LinearArgs::paired.
struct LinearJob {
  LinearArgs args;
  LinearInput input;
  LinearArgs paired;
};

/// Context of linear operations: kernels, threads, and the stream's memory.
struct CpuRuntime {
  const CpuKernels& kernels;
  ThreadPool& pool;
  int64_t parallel_work = kParallelWork;
  InputWatcher* watcher = nullptr;

  /// Calls f(begin, end, thread) over [0, n) items of `work` each; on the caller only if they are
  /// few.
  template <class F>
  void for_range(int64_t n, int64_t work, F&& f) const {
    if (n <= 0) return;
    if (n == 1 || n * work < parallel_work) {
      f(int64_t{0}, n, 0);
      return;
    }
    pool.parallel([&](int thread, int n_threads) {
      const Range r = split_range(n, thread, n_threads);
      if (r.begin < r.end) f(r.begin, r.end, thread);
    });
  }

  /// The same for work at uneven speed, such as reading weights: three quarters are assigned
  /// statically, and idle threads take the rest in units of `grain` items or multiples. Short
  /// regions are assigned statically as a whole, because dynamic balancing would cost more than it
  /// gains.
  template <class F>
  void share_range(int64_t n, int64_t work, int64_t grain, F&& f) const {
    if (n * work < kSharedRegion * parallel_work) return for_range(n, work, f);
    const int64_t turn = round_up(std::max<int64_t>(1, kTurn * parallel_work / work), grain);
    const int64_t dealt = n - n / 4 / turn * turn;
    std::atomic<int64_t> next{dealt};
    pool.parallel([&](int thread, int n_threads) {
      const Range r = split_range(dealt, thread, n_threads, grain);
      if (r.begin < r.end) f(r.begin, r.end, thread);
      for (int64_t begin; (begin = next.fetch_add(turn, std::memory_order_relaxed)) < n;) {
        f(begin, begin + turn, thread);
      }
    });
  }

  /// y[r] = norm(x[r]) for n rows of d.
  void norm_rows(const Norm& norm, const float* x, int64_t ld_x, int64_t n, int32_t d,
                 float* y) const;

  /// y[r] = the rotation of x[r] for n rows of d; y may be x if ld_x is d.
  void rotate_rows(const InputRotation& rotation, const float* x, int64_t ld_x, int64_t n,
                   int32_t d, float* y) const;

  /// Sets up and quantises an input of n rows in the stream's memory from row `first` on. The rows
  /// are row_ids[i] of x, or i. If `quantise` is false the caller quantises row by row.
  LinearInput make_input(CpuStream& s, ActPrecision act, const float* x, int64_t ld_x,
                         const int32_t* row_ids, int32_t n, int32_t d, int64_t first) const;
  void quantise(const LinearInput& input) const;

  /// Runs all tiles of all jobs in one parallel region, split by work. Each job has its own input.
  void run_jobs(LinearJob* jobs, int32_t n_jobs) const;

  /// One matrix product, quantising its input: y (n, ld_y) = x W^T + bias.
  void linear(CpuStream& s, const Matrix& weight, const float* bias, const float* x, int64_t ld_x,
              int32_t n, float* y, int64_t ld_y, bool accumulate = false, float scale = 1) const;
};

void cpu_norm(const CpuRuntime& rt, CpuStream& s, const NormOp& op);
void cpu_cap(const CpuRuntime& rt, const CapOp& op);
void cpu_gate(const CpuRuntime& rt, const GateOp& op);
void cpu_scale(const CpuRuntime& rt, const ScaleOp& op);
void cpu_activate(const CpuRuntime& rt, const ActivateOp& op);
void cpu_linear(const CpuRuntime& rt, CpuStream& s, const LinearOp& op);
void cpu_embed(const CpuRuntime& rt, CpuStream& s, const Matrix& table, const Matrix& positions,
               const BatchRow* rows, int32_t n_rows, float multiplier, float* x);
void cpu_embed_from(CpuStream& s, RowSource& table, int32_t d, const BatchRow* rows, int32_t n_rows,
                    float multiplier, float* x);
void cpu_attention(const CpuRuntime& rt, const AttentionOp& op);
void cpu_latent_attention(const CpuRuntime& rt, const AttentionOp& op);
/// Attention with queries and keys as wide as the latent.
void cpu_attend_latent(const CpuRuntime& rt, const AttentionOp& op);
void cpu_mix(const CpuRuntime& rt, CpuStream& s, const MixerOp& op);
void cpu_ffn(const CpuRuntime& rt, CpuStream& s, const FfnOp& op);

}  // namespace moe
