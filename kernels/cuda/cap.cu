// SPDX-License-Identifier: MIT
// Soft-capped logits and gated outputs of attention, one thread per element.

#include "kernels/activation.h"
#include "kernels/cuda/ops.h"
#include "src/base/inline.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

__global__ void __launch_bounds__(kThreads) cap_kernel(CapOp op) {
  wait_for_previous();
  const int64_t n = int64_t{op.n_rows} * op.d;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    const float x = op.x[i];
    if (is_finite(x)) op.x[i] = soft_cap<ScalarLanes>(x, op.limit);
  }
}

__global__ void __launch_bounds__(kThreads) gate_kernel(GateOp op) {
  wait_for_previous();
  const int64_t n = int64_t{op.n_rows} * op.d;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    op.x[i] = op.x[i] * sigmoid_float(op.gate[i / op.shared]);
  }
}

template <class Op>
cudaError_t launch_elements(void (*kernel)(Op), cudaStream_t stream, const Op& op) {
  const int64_t blocks = (int64_t{op.n_rows} * op.d + kThreads - 1) / kThreads;
  if (blocks <= 0) return cudaSuccess;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
  grid.threads = kThreads;
  return launch(kernel, grid, stream, op);
}

}  // namespace

cudaError_t cap_rows(cudaStream_t stream, const CapOp& op) {
  return launch_elements(cap_kernel, stream, op);
}

cudaError_t gate_rows(cudaStream_t stream, const GateOp& op) {
  return launch_elements(gate_kernel, stream, op);
}

}  // namespace moe::cuda
