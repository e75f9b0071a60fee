// SPDX-License-Identifier: MIT
#pragma once
// A warp as the team that routes one token (kernels/router/common.h): lane l has the experts l, l +
// 32, ... of at most 32 kPer. Bit-identical to one thread.

#include <limits.h>

#include "kernels/cuda/warp.h"
#include "kernels/router/common.h"

namespace moe::cuda {

template <int kPer>
struct WarpTeam {
  /// Finite floats as integers of the same order; -0 is 0.
  static __device__ int ordered(float v) {
    const int bits = v == 0.0f ? 0 : ScalarLanes::bits(v);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
  }

  template <class F>
  static __device__ void each(int32_t n, const F& f) {
    __syncwarp();
    for (int32_t i = lane_id(); i < n; i += kWarp) f(i);
    __syncwarp();
  }

  static __device__ void best_first(const float* value, int32_t n, int32_t k, int32_t*,
                                    int32_t* out) {
    __syncwarp();
    int key[kPer];
    MOE_CUDA_UNROLL
    for (int p = 0; p < kPer; ++p) {
      const int i = p * kWarp + lane_id();
      key[p] = i < n ? ordered(value[i]) : INT_MIN;  // below every finite float
    }
    if (k <= kWarp / 2 || k <= 4 * kPer) {
      pick(key, k, out);
    } else {
      rank(key, n, k, out);
    }
    __syncwarp();
  }

  static __device__ void softmax_all(const float* z, int32_t n, float* p) {
    __syncwarp();
    float top = z[0];
    for (int i = lane_id(); i < n; i += kWarp) top = z[i] > top ? z[i] : top;
    top = warp_max(top);
    for (int i = lane_id(); i < n; i += kWarp) p[i] = exp_float(z[i] - top);
    __syncwarp();
    float sum = 0;
    for (int i = lane_id() % 16; i < n; i += 16) sum = sum + p[i];
    const float total = stripe_tree(sum);
    __syncwarp();
    for (int i = lane_id(); i < n; i += kWarp) p[i] = p[i] / total;
    __syncwarp();
  }

 private:
  // Selects the best remaining one, k times.
  static __device__ void pick(int (&key)[kPer], int32_t k, int32_t* out) {
    for (int32_t slot = 0; slot < k; ++slot) {
      int best = key[0];
      int expert = lane_id();
      MOE_CUDA_UNROLL
      for (int p = 1; p < kPer; ++p) {
        if (key[p] > best) expert = p * kWarp + lane_id();
        best = key[p] > best ? key[p] : best;
      }
      const int top = __reduce_max_sync(kAllLanes, best);
      expert = __reduce_min_sync(kAllLanes, best == top ? expert : INT_MAX);
      MOE_CUDA_UNROLL
      for (int p = 0; p < kPer; ++p) {
        if (expert == p * kWarp + lane_id()) key[p] = INT_MIN;
      }
      if (lane_id() == 0) out[slot] = expert;
    }
  }

  // Every expert counts those ranked before it.
  static __device__ void rank(const int (&key)[kPer], int32_t n, int32_t k, int32_t* out) {
    int before[kPer];
    MOE_CUDA_UNROLL
    for (int q = 0; q < kPer; ++q) before[q] = 0;
    MOE_CUDA_UNROLL
    for (int p = 0; p < kPer; ++p) {
      for (int l = 0; l < kWarp; ++l) {
        const int other = __shfl_sync(kAllLanes, key[p], l);
        MOE_CUDA_UNROLL
        for (int q = 0; q < kPer; ++q) {
          const bool earlier = p < q || (p == q && l < lane_id());
          before[q] += other > key[q] || (earlier && other == key[q]) ? 1 : 0;
        }
      }
    }
    MOE_CUDA_UNROLL
    for (int q = 0; q < kPer; ++q) {
      const int i = q * kWarp + lane_id();
      if (i < n && before[q] < k) out[before[q]] = i;
    }
  }
};

}  // namespace moe::cuda
