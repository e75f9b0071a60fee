// SPDX-License-Identifier: MIT
#pragma once
// The Isa (kernels/cpu/generic/isa_contract.md) of a block of threads, as far as token mixers use
// it: 16 threads are the lanes of a vector, and several such groups share a mixer's unit
// (kernels/mixers/groups.h). Two groups of a warp need not do the same at the same time.

#include "kernels/cuda/platform.h"

namespace moe::cuda {

struct GroupIsa {
  using F = float;
  using M = bool;
  static constexpr int kLanes = 16;
  static constexpr int kGroups = 8;
  static constexpr int kThreads = kGroups * kLanes;
  static constexpr int kMaxTokens = 1;
  static constexpr int kSums = 4;

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  static __device__ int group() { return static_cast<int>(threadIdx.x) / kLanes; }
  static __device__ void wait() { __syncthreads(); }
  template <class T>
  static __device__ T& shared() {
    MOE_CUDA_SHARED(T, memory, );
    return memory;
  }

  static __device__ F load(const float* p) { return p[lane()]; }
  static __device__ F load_n(const float* p, int n) { return lane() < n ? p[lane()] : 0.0f; }
  static __device__ void store(float* p, F a) { p[lane()] = a; }
  static __device__ void store_n(float* p, F a, int n) {
    if (lane() < n) p[lane()] = a;
  }

  static __device__ F zero() { return 0.0f; }
  static __device__ F set1(float a) { return a; }
  static __device__ F add(F a, F b) { return a + b; }
  static __device__ F sub(F a, F b) { return a - b; }
  static __device__ F mul(F a, F b) { return a * b; }
  static __device__ F fma(F a, F b, F c) { return fused(a, b, c); }
  static __device__ M lt(F a, F b) { return a < b; }
  static __device__ M eq(F a, F b) { return a == b; }
  static __device__ F select(M m, F a, F b) { return m ? a : b; }

  static __device__ int count(M m) { return __popc(__ballot_sync(mask(), m ? 1 : 0)); }
  static __device__ float reduce_add(F a) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      a = a + __shfl_xor_sync(mask(), a, half);
    }
    return a;
  }

 private:
  // The group's lanes in its warp.
  static __device__ unsigned mask() { return 0xffffu << (threadIdx.x & kLanes); }
};

}  // namespace moe::cuda
