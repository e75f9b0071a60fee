// SPDX-License-Identifier: MIT
#pragma once
// Activations of matrix products with many rows in shared memory, three steps deep.

#include "kernels/cuda/matmul/matmul_mma.cuh"

namespace moe::cuda {

inline constexpr int kStages = 3;
inline constexpr int kWarpPairs = 4;                      // pairs of tiles per block
inline constexpr int kWarpColumns = kWarps / kWarpPairs;  // column groups of activation rows
inline constexpr int kPassTokens = 32;                    // tokens that a warp finishes at once
inline constexpr int kResultBytes = kWarps * kPassTokens * kResultStride * 4;

/// Activation rows of a block whose warps have n tiles.
template <int kN>
inline constexpr int kTokensOf = kWarpColumns * 8 * kN;

/// Offset of 16 codes of a row in a stage: rows of 128 bytes, with pieces swapped in all but every
/// fourth row, so that concurrent lanes use different banks, be it two rows with four neighbouring
/// pieces each, or four rows with two.
__device__ __forceinline__ int32_t place_of(int32_t row, int32_t piece) {
  return row * kStep + (piece ^ (row % 2 * 4 + row / 2 % 2 * 2)) * 16;
}

__device__ __forceinline__ int32_t forgotten_thread() {
  return forgotten(static_cast<int32_t>(threadIdx.x));
}

/// Copies codes of a block's rows to shared memory.
template <int kTokens>
struct CodeStages {
  uint8_t* shared;
  const int32_t* inputs;  // input rows of the block's tokens, in shared memory; -1: none
  const int8_t* codes;
  int32_t ld;  // in pieces of 16 codes

  /// One commit per call, even without such a step. Recomputes addresses each time, because the
  /// sums need the registers.
  __device__ __forceinline__ void fetch(int32_t step, int32_t n_steps) const {
    if (step < n_steps) {
      const int32_t thread = forgotten_thread();
      uint8_t* stage = stage_of(step);
      MOE_CUDA_UNROLL
      for (int i = 0; i < kTokens * 8 / kThreads; ++i) {
        const int32_t token = thread / 8 + i * (kThreads / 8);
        const int32_t input = inputs[token];
        const int64_t piece =
            input < 0 ? 0 : int64_t{input} * ld + step * (kStep / 16) + thread % 8;
        cp_async_16(stage + place_of(token, thread % 8), codes + piece * 16, input >= 0);
      }
    }
    cp_async_commit();
  }
  __device__ __forceinline__ uint8_t* stage_of(int32_t step) const {
    return shared + step % kStages * (kTokens * kStep);
  }
};

}  // namespace moe::cuda
