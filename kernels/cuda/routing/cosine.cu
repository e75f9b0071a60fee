// SPDX-License-Identifier: MIT
// Cosines of projected tokens and expert embeddings: a block per token, a thread per expert, in the
// CPU's order: products ascending, lengths in 16 stripes and the fixed tree.

#include <math.h>

#include "kernels/cuda/matmul/element.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/ops.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 64;

__device__ inline float floored(float length, float eps) { return length < eps ? eps : length; }

/// Length of one row of W by one thread.
__device__ inline float measured_length(const Matrix& w, int32_t row) {
  float lane[16];
  for (int l = 0; l < 16; ++l) lane[l] = 0;
  for (int i = 0; i < w.cols; i += 16) {
    for (int l = 0; l < 16; ++l) {
      const float x = i + l < w.cols ? weight_of(w, row, i + l) : 0.0f;
      lane[l] = fused(x, x, lane[l]);
    }
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  }
  return sqrtf(lane[0]);
}

/// One row of W times z, with the definition of float inputs and stored weights.
__device__ inline float dot(const Matrix& w, int32_t row, const float* z) {
  const bool grouped = w.scale_kind == ScaleKind::kGroup;
  const int32_t step = grouped ? w.group : w.cols;
  float sum = 0;
  float total = 0;
  for (int32_t begin = 0; begin < w.cols; begin += step) {
    const int32_t end = begin + step < w.cols ? begin + step : w.cols;
    float inputs = 0;
    for (int32_t k = begin; k < end; ++k) {
      sum = fused(element_of(w, row, k), z[k], sum);
      inputs = inputs + z[k];
    }
    if (!grouped) break;
    total = fused(sum, scale_of(w, row, begin), total);
    if (has_group_scales(w)) {
      const GroupScales s = group_scales_of(w, row, begin / w.group);
      if (s.minimums) total = fused(inputs, s.minimum, total);
    }
    sum = 0;
  }
  return grouped ? total : sum * scale_of(w, row, 0);
}

/// Length of an expert's embedding, which is known if the model measured it.
__device__ inline float length_of(const CosineOp& op, int32_t expert) {
  return op.lengths != nullptr ? op.lengths[expert] : measured_length(op.embedding, expert);
}

__global__ void __launch_bounds__(kThreads) cosine_kernel(CosineOp op) {
  wait_for_previous();
  auto* z = reinterpret_cast<float*>(dynamic_shared());  // one token, normalised
  const int n_experts = op.embedding.rows;
  const auto expert = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x);
  const int d = op.embedding.cols;
  const float eps = op.config.cosine_eps;
  const float length = expert < n_experts ? floored(length_of(op, expert), eps) : 1.0f;
  for (int64_t token = blockIdx.x; token < op.n_tokens; token += gridDim.x) {
    const float* x = op.projected + token * d;
    float divisor = 1;
    if (op.config.normalise_token) {
      divisor = floored(sqrtf(norm_detail::sum_squares(x, d, 0)), eps);
    }
    for (int i = static_cast<int>(threadIdx.x); i < d; i += kThreads) z[i] = x[i] / divisor;
    __syncthreads();
    if (expert < n_experts) {
      op.scores[token * n_experts + expert] = dot(op.embedding, expert, z) / length;
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t cosine_scores(cudaStream_t stream, const CosineOp& op) {
  if (op.n_tokens <= 0) return cudaSuccess;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(op.n_tokens),
                     static_cast<unsigned>((op.embedding.rows + kThreads - 1) / kThreads));
  grid.threads = kThreads;
  grid.shared_bytes = sizeof(float) * static_cast<size_t>(op.embedding.cols);
  return launch(cosine_kernel, grid, stream, op);
}

int32_t most_cosine_inputs(size_t shared) { return static_cast<int32_t>(shared / sizeof(float)); }

}  // namespace moe::cuda
