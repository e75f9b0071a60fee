// SPDX-License-Identifier: MIT
// Statistics of routing. Integers: the order of addition does not matter.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/warp.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kMaxBins = 8192;  // counted in shared memory first

__device__ inline void add(uint64_t* to, int64_t n) {
  if (n != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(n));
}

/// Bins: experts' tokens, then tokens by how many experts served them.
__global__ void __launch_bounds__(kThreads) count_kernel(CountOp op, bool shared_bins) {
  wait_for_previous();
  auto* bins = reinterpret_cast<int32_t*>(dynamic_shared());
  const int n_bins = 2 * op.n_experts + 1;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; shared_bins && i < n_bins; i += kThreads) bins[i] = 0;
  __syncthreads();
  const int64_t k = op.routing.max_k;
  const int64_t token = int64_t{blockIdx.x} * kThreads + thread;
  int dropped = 0;
  if (token < op.routing.n_tokens) {
    int served = 0;
    const int count = op.routing.count[token];
    for (int64_t at = token * k; at < token * k + count; ++at) {
      if (op.routing.kept[at] == 0) continue;
      ++served;
      const int expert = op.routing.expert[at];
      if (shared_bins) {
        atomicAdd(bins + expert, 1);
      } else if (op.tokens_per_expert != nullptr) {
        add(op.tokens_per_expert + expert, 1);
      }
    }
    if (shared_bins) {
      atomicAdd(bins + op.n_experts + served, 1);
    } else if (op.experts_per_token != nullptr) {
      add(op.experts_per_token + served, 1);
    }
    dropped = count - served;
  }
  dropped = __reduce_add_sync(kAllLanes, dropped);
  if (lane_id() == 0) add(op.totals + 1, dropped);
  if (blockIdx.x == 0 && thread == 0) add(op.totals, op.routing.n_tokens);
  __syncthreads();
  for (int i = thread; shared_bins && i < n_bins; i += kThreads) {
    const bool experts = i < op.n_experts;
    uint64_t* to = experts ? op.tokens_per_expert : op.experts_per_token;
    if (to != nullptr) add(to + (experts ? i : i - op.n_experts), bins[i]);
  }
}

}  // namespace

cudaError_t count_routing(cudaStream_t stream, const CountOp& op) {
  const int32_t n = op.routing.n_tokens;
  if (n <= 0) return cudaSuccess;
  const bool shared_bins = op.n_experts <= kMaxBins / 2;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads));
  grid.threads = kThreads;
  grid.shared_bytes =
      shared_bins ? sizeof(int32_t) * (2 * static_cast<size_t>(op.n_experts) + 1) : 0;
  return launch(count_kernel, grid, stream, op, shared_bins);
}

}  // namespace moe::cuda
