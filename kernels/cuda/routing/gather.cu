// SPDX-License-Identifier: MIT
// Gathers rows.

#include "kernels/cuda/ops.h"

namespace moe::cuda {
namespace {

constexpr unsigned kThreads = 128;

__global__ void __launch_bounds__(kThreads) gather_kernel(GatherOp op) {
  wait_for_previous();
  const int32_t n = op.rows.counted != nullptr ? *op.rows.counted : op.rows.n;
  for (int64_t r = blockIdx.x; r < n; r += gridDim.x) {
    const float* from = op.x + static_cast<int64_t>(op.row[r]) * op.d;
    float* to = op.y + r * op.d;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < op.d; i += kThreads) to[i] = from[i];
  }
}

}  // namespace

cudaError_t gather_rows(cudaStream_t stream, const GatherOp& op) {
  const unsigned blocks = static_cast<unsigned>(op.rows.n < 4096 ? op.rows.n : 4096);
  return launch(gather_kernel, {blocks, kThreads, 0}, stream, op);
}

}  // namespace moe::cuda
