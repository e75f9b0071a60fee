// SPDX-License-Identifier: MIT
#pragma once
// Norms of one row by one warp, in the CPU's order: 16 stripes, then the fixed tree.

#include <math.h>

#include "kernels/cuda/warp.h"
#include "kernels/kinds.h"
#include "kernels/math.h"

namespace moe::cuda {

/// y = (x - mean) * scale, then weight and bias.
struct RowStats {
  float mean;
  float scale;
};

namespace norm_detail {

__device__ inline float sum_squares(const float* x, int n, float mean) {
  float sum = 0;
  MOE_UNROLL_8
  for (int i = lane_id() % 16; i < n; i += 16) {
    const float v = x[i] - mean;
    sum = fused(v, v, sum);
  }
  return stripe_tree(sum);
}

__device__ inline float mean_around(const float* x, int n, float middle) {
  float sum = 0;
  MOE_UNROLL_8
  for (int i = lane_id() % 16; i < n; i += 16) sum = sum + (x[i] - middle);
  return stripe_tree(sum) / static_cast<float>(n);
}

}  // namespace norm_detail

/// Called by a whole warp; every lane gets the result. x: shared or device memory.
__device__ inline RowStats row_stats(NormKind kind, float eps, const float* x, int n) {
  if (kind == NormKind::kNone) return {0, 1};
  float mean = 0;
  if (kind == NormKind::kLayer) {
    const float rough = norm_detail::mean_around(x, n, 0);
    mean = rough + norm_detail::mean_around(x, n, rough);
  }
  const float variance = norm_detail::sum_squares(x, n, mean) / static_cast<float>(n);
  return {mean, 1.0f / sqrtf(variance + eps)};
}

/// Element i of the row, normed.
__device__ inline float norm_value(const Norm& norm, RowStats stats, float x, int i) {
  if (norm.kind == NormKind::kNone) return x;
  float v = (x - stats.mean) * stats.scale;
  if (norm.weight != nullptr) v = v * norm.weight[i];
  if (norm.bias != nullptr) v = v + norm.bias[i];
  return v;
}

}  // namespace moe::cuda
