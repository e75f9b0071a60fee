// SPDX-License-Identifier: MIT
#pragma once
// Warp helpers shared by several kernels.

#include "kernels/cuda/platform.h"

// Loops over register arrays, which must not have run-time indices.
#if defined(__CUDA_ARCH__)
#define MOE_CUDA_UNROLL _Pragma("unroll")
#define MOE_CUDA_UNROLL_4 _Pragma("unroll 4")  // loads in flight
#else
#define MOE_CUDA_UNROLL
#define MOE_CUDA_UNROLL_4
#endif

namespace moe::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }

/// The fixed tree over 16 lanes (kernels/README.md). Lanes l and l + 16 hold the same stripe; every
/// lane gets the sum.
__device__ inline float stripe_tree(float v) {
  for (int half = 8; half > 0; half /= 2) v = v + __shfl_xor_sync(kAllLanes, v, half);
  return v;
}

/// The maximum over a warp; no NaN.
__device__ inline float warp_max(float v) {
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, v, half);
    v = other > v ? other : v;
  }
  return v;
}

/// Inclusive prefix sum over the lanes.
__device__ inline int warp_prefix_sum(int v) {
  const int lane = lane_id();
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_sync(kAllLanes, v, lane >= step ? lane - step : lane);
    if (lane >= step) v += other;
  }
  return v;
}

/// Up to four consecutive floats, 0 from n on. `aligned`: p + i may be read as 16 bytes.
__device__ inline float4 load_four(const float* p, int64_t i, int64_t n, bool aligned) {
  if (aligned && i + 4 <= n) return *reinterpret_cast<const float4*>(p + i);
  float4 v = make_float4(0, 0, 0, 0);
  if (i < n) v.x = p[i];
  if (i + 1 < n) v.y = p[i + 1];
  if (i + 2 < n) v.z = p[i + 2];
  if (i + 3 < n) v.w = p[i + 3];
  return v;
}
__device__ inline void store_four(float* p, int64_t i, int64_t n, bool aligned, float4 v) {
  if (aligned && i + 4 <= n) {
    *reinterpret_cast<float4*>(p + i) = v;
    return;
  }
  if (i < n) p[i] = v.x;
  if (i + 1 < n) p[i + 1] = v.y;
  if (i + 2 < n) p[i + 2] = v.z;
  if (i + 3 < n) p[i + 3] = v.w;
}

/// Host side of `aligned`: for rows of `ld` floats from p on.
inline bool rows_aligned(const float* p, int64_t ld) {
  return ld % 4 == 0 && reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

}  // namespace moe::cuda
