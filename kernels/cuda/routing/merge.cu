// SPDX-License-Identifier: MIT
// The last step of a feed-forward layer: the shared expert, the scale and the residual.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/warp.h"
#include "kernels/math.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 128;

__device__ inline float merge_one(const MergeOp& op, float sum, float shared, float gate, float y) {
  const float v = op.shared != nullptr ? fused(gate, shared, sum) : sum;
  return op.accumulate ? fused(op.scale, v, y) : op.scale * v;
}

__global__ void __launch_bounds__(kThreads) merge_kernel(MergeOp op, bool aligned) {
  wait_for_previous();
  const auto c = static_cast<int32_t>(4 * (blockIdx.x * kThreads + threadIdx.x));
  if (c >= op.d) return;
  for (int64_t row = blockIdx.y; row < op.n_rows; row += gridDim.y) {
    const int64_t at = row * op.d;
    const float gate = op.gate != nullptr ? sigmoid_float(op.gate[row]) : 1.0f;
    const float4 none = make_float4(0, 0, 0, 0);
    const float4 s = op.sum != nullptr ? load_four(op.sum + at, c, op.d, aligned) : none;
    const float4 e = op.shared != nullptr ? load_four(op.shared + at, c, op.d, aligned) : none;
    const float4 y = op.accumulate ? load_four(op.y + at, c, op.d, aligned) : none;
    store_four(op.y + at, c, op.d, aligned,
               make_float4(merge_one(op, s.x, e.x, gate, y.x), merge_one(op, s.y, e.y, gate, y.y),
                           merge_one(op, s.z, e.z, gate, y.z), merge_one(op, s.w, e.w, gate, y.w)));
  }
}

}  // namespace

cudaError_t merge_rows(cudaStream_t stream, const MergeOp& op) {
  if (op.n_rows <= 0) return cudaSuccess;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((op.d + 4 * kThreads - 1) / (4 * kThreads)),
                     static_cast<unsigned>(op.n_rows < kMostGridY ? op.n_rows : kMostGridY));
  grid.threads = kThreads;
  const bool aligned =
      rows_aligned(op.sum, op.d) && rows_aligned(op.shared, op.d) && rows_aligned(op.y, op.d);
  return launch(merge_kernel, grid, stream, op, aligned);
}

}  // namespace moe::cuda
