// SPDX-License-Identifier: MIT
#pragma once
// Shared by the kernels of matrix products with few rows: weights in flight, and launching.

#include "kernels/cuda/matmul/matmul_mma.cuh"

namespace moe::cuda {

/// Bytes in flight per lane: 4 KiB per warp, and 64 KiB with 16 warps per multiprocessor.
inline constexpr int kRingBytes = 128;

/// Prefetches the units of a lane's tile. Steps first, first + stride, ...
template <class Format>
class Ahead {
  static constexpr int kRing = kRingBytes / static_cast<int>(sizeof(typename Format::Unit));

 public:
  static constexpr int kSteps = kRing / Format::kUnits;

  /// Loads the units of steps step_of(0 .. kSteps - 1).
  template <class StepOf>
  __device__ __forceinline__ void start(const LaneTile& tile, const StepOf& step_of) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kRing; ++i) {
      ring_[i] = load_unit<Format, true>(tile, step_of(i / Format::kUnits), i % Format::kUnits);
    }
  }
  /// Takes the units in slot j, which belong to the next step.
  __device__ __forceinline__ void take(int j, typename Format::Unit (&out)[Format::kUnits]) const {
    MOE_CUDA_UNROLL
    for (int u = 0; u < Format::kUnits; ++u) out[u] = ring_[j * Format::kUnits + u];
  }
  /// Loads the next units of slot j.
  __device__ __forceinline__ void refill(const LaneTile& tile, int j, int32_t step) {
    MOE_CUDA_UNROLL
    for (int u = 0; u < Format::kUnits; ++u) {
      ring_[j * Format::kUnits + u] = load_unit<Format, true>(tile, step, u);
    }
  }

 private:
  typename Format::Unit ring_[kRing];
};

/// Finishes token threadIdx.x / 32 of a chunk of at most one per warp: `v` is the lane's row of x
/// W^T.
template <bool kGated>
__device__ __forceinline__ void write_token_of_warp(const ProductArgs& a, const MatmulOut& out,
                                                    const LaneTile& tile, const RowChunk& chunk,
                                                    float v) {
  const auto warp = static_cast<int32_t>(threadIdx.x / kWarp);
  const float bias = bias_of(tile.weight, tile.valid ? tile.row : 0);
  const LaneRow row{tile.row, tile.valid, bias};
  const auto product = [v](int32_t) { return v; };
  if constexpr (kGated) {
    // One token: the gate's lanes finish it.
    write_tokens<true>(a, out, row, chunk.begin + warp, 0, 1, 1, product);
  } else {
    write_tokens<false>(a, out, row, chunk.begin, warp, kWarps, chunk.end - chunk.begin, product);
  }
}

template <int kChunk>
cudaError_t start_few(void (*kernel)(ProductArgs), cudaStream_t stream, const ProductArgs& args,
                      int32_t blocks_y) {
  const int64_t chunks = n_chunks(args.rows, kChunk);
  return launch(kernel,
                {dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(blocks_y)), kThreads, 0},
                stream, args);
}

}  // namespace moe::cuda
