// SPDX-License-Identifier: MIT
// Reorders the pairs of a layer by another order of experts.

#include "kernels/cuda/ops.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) move_kernel(MovePairsOp op) {
  wait_for_previous();
  const int32_t k = op.routing.max_k;
  const int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (slot >= int64_t{op.routing.n_tokens} * k) return;
  const int32_t old = op.pairs.place[slot];
  if (old < 0) return;
  const int32_t expert = op.routing.expert[slot];
  const int32_t place = old + op.moved[expert];
  op.pairs.place[slot] = place;
  op.pairs.token[place] = static_cast<int32_t>(slot / k);
  op.pairs.expert[place] = expert;
}

}  // namespace

cudaError_t move_pairs(cudaStream_t stream, const MovePairsOp& op) {
  const int64_t slots = int64_t{op.routing.n_tokens} * op.routing.max_k;
  Grid grid;
  grid.blocks = static_cast<unsigned>((slots + kThreads - 1) / kThreads);
  grid.threads = kThreads;
  return launch(move_kernel, grid, stream, op);
}

}  // namespace moe::cuda
