// SPDX-License-Identifier: MIT
// Sorts the active pairs of a layer (pair_groups.h). A single chunk, as in a decode step, takes one
// launch.

#include "kernels/cuda/routing/pair_groups.h"

namespace moe::cuda {
namespace {

using namespace pairs;

__global__ void __launch_bounds__(kThreads) count_kernel(GroupOp op) {
  MOE_CUDA_SHARED(int32_t, shared, [kSharedExperts]);
  wait_for_previous();
  const int chunk = static_cast<int>(blockIdx.x);
  int32_t* const numbers = numbers_of(op, chunk, shared);
  count_chunk(op, chunk, numbers);
  copy_numbers(op, numbers, op.places + int64_t{chunk} * op.n_experts);
}
__global__ void __launch_bounds__(kThreads) scan_kernel(GroupOp op) {
  wait_for_previous();
  scan_chunks(op, op.places);
}
__global__ void __launch_bounds__(kThreads) place_kernel(GroupOp op) {
  MOE_CUDA_SHARED(int32_t, shared, [kSharedExperts]);
  wait_for_previous();
  const int chunk = static_cast<int>(blockIdx.x);
  int32_t* const numbers = numbers_of(op, chunk, shared);
  copy_numbers(op, op.places + int64_t{chunk} * op.n_experts, numbers);
  place_chunk(op, chunk, numbers);
}

__global__ void __launch_bounds__(kThreads) group_kernel(GroupOp op) {
  MOE_CUDA_SHARED(int32_t, numbers, [kSharedExperts]);
  wait_for_previous();
  group_block(op, numbers);
}

}  // namespace

int64_t group_pairs_scratch(int32_t, int32_t, int32_t n_experts) {
  return int64_t{kMaxChunks} * n_experts;
}

cudaError_t group_pairs(cudaStream_t stream, const Routing& routing, int32_t n_experts,
                        const PairLists& out, int32_t* scratch) {
  const Chunks chunks = chunks_of(routing.n_tokens, routing.max_k);
  const GroupOp op{routing, n_experts, chunks.tokens, chunks.n, out, scratch};
  Grid grid;
  grid.threads = kThreads;
  if (chunks.n == 1) return launch(group_kernel, grid, stream, op);
  grid.blocks = static_cast<unsigned>(chunks.n);
  cudaError_t error = launch(count_kernel, grid, stream, op);
  if (error != cudaSuccess) return error;
  Grid one;
  one.threads = kThreads;
  error = launch(scan_kernel, one, stream, op);
  if (error != cudaSuccess) return error;
  return launch(place_kernel, grid, stream, op);
}

}  // namespace moe::cuda
