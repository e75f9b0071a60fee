// SPDX-License-Identifier: MIT
// Rows of the embedding table, gathered from its tiles; one thread per element.

#include "kernels/cuda/matmul/element.h"
#include "kernels/cuda/ops.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedOp op) {
  wait_for_previous();
  const auto col = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (col >= op.table.cols) return;
  for (int64_t row = blockIdx.y; row < op.n_rows; row += gridDim.y) {
    float v = weight_of(op.table, op.rows[row].token, col) * op.multiplier;
    if (op.positions.tiles != nullptr) {
      v = v + weight_of(op.positions, op.rows[row].position, col);
    }
    op.x[row * op.table.cols + col] = v;
  }
}

}  // namespace

cudaError_t embed_rows(cudaStream_t stream, const EmbedOp& op) {
  if (op.n_rows <= 0) return cudaSuccess;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((op.table.cols + kThreads - 1) / kThreads),
                     static_cast<unsigned>(op.n_rows < kMostGridY ? op.n_rows : kMostGridY));
  grid.threads = kThreads;
  return launch(embed_kernel, grid, stream, op);
}

}  // namespace moe::cuda
