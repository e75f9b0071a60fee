// SPDX-License-Identifier: MIT
// Soft-capped logits, one thread per element.

#include "kernels/activation.h"
#include "kernels/cuda/ops.h"
#include "src/base/inline.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

__global__ void __launch_bounds__(kThreads) cap_kernel(CapOp op) {
  const int64_t n = int64_t{op.n_rows} * op.d;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    const float x = op.x[i];
    if (is_finite(x)) op.x[i] = soft_cap<ScalarLanes>(x, op.limit);
  }
}

}  // namespace

cudaError_t cap_rows(cudaStream_t stream, const CapOp& op) {
  const int64_t blocks = (int64_t{op.n_rows} * op.d + kThreads - 1) / kThreads;
  if (blocks <= 0) return cudaSuccess;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
  grid.threads = kThreads;
  return launch(cap_kernel, grid, stream, op);
}

}  // namespace moe::cuda
