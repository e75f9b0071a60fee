// SPDX-License-Identifier: MIT
#pragma once
// Sums of matrix products with many rows and weights with scales in the tile. A block decodes the
// scales of a step once, into shared memory, while it computes the step before.

#include "kernels/cuda/matmul/matmul_groups.cuh"
#include "kernels/cuda/matmul/matmul_stages.cuh"

namespace moe::cuda {

/// The scales of a step: of its groups of weights, and of the activations of its units.
template <class Layout>
struct StepScales {
  static constexpr int kGroups = kStep / Layout::kGroupInputs;
  static constexpr int kRows = kWarpPairs * kWarp;
  static constexpr int kTokens = kThreads / kStepGroups;
  alignas(16) float scales[kGroups][kRows];
  float minimums[Layout::kMinimums ? kGroups : 1][kRows];
  float inputs[kStepGroups][kTokens];
};

/// Bytes of the scales of two steps; 0 for formats without scales in the tile.
template <class Format>
constexpr int step_scale_bytes() {
  if constexpr (kInTile<Format>) {
    return static_cast<int>(2 * sizeof(StepScales<typename Format::Layout>));
  }
  return 0;
}

/// Reads and decodes scales: a thread has its lane's row in some groups, and one activation scale.
template <class Format>
class ScaleStages {
  using Layout = typename Format::Layout;
  using Step = StepScales<Layout>;
  static constexpr int kOwn = Step::kGroups / kWarpColumns;

 public:
  struct Values {
    GroupScales weights[kOwn];
    float input;
  };

  __device__ __forceinline__ ScaleStages(uint8_t* shared, const LaneTile& tile, const Codes& codes,
                                         const int32_t* inputs)
      : steps_(reinterpret_cast<Step*>(shared)), tile_(tile), codes_(codes), inputs_(inputs) {}

  __device__ __forceinline__ Values load(int32_t step) const {
    const int32_t thread = forgotten_thread();
    Values v;
    MOE_CUDA_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      v.weights[i] = scales_of_lane<Format>(tile_, step * Step::kGroups + own(thread) + i);
    }
    const Matrix& m = tile_.weight.matrix;
    const int32_t unit = step * kStepGroups + thread / Step::kTokens;
    const int32_t input = inputs_[thread % Step::kTokens];
    const bool exists = input >= 0 && unit * kTileGroup < m.cols;
    v.input = exists ? RowScales(codes_, m, input).at(unit) : 0.0f;
    return v;
  }
  __device__ __forceinline__ void store(int32_t step, const Values& v) const {
    const int32_t thread = forgotten_thread();
    Step& to = steps_[step % 2];
    MOE_CUDA_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      to.scales[own(thread) + i][thread % Step::kRows] = v.weights[i].scale;
      if constexpr (Layout::kMinimums) {
        to.minimums[own(thread) + i][thread % Step::kRows] = v.weights[i].minimum;
      }
    }
    to.inputs[thread / Step::kTokens][thread % Step::kTokens] = v.input;
  }
  __device__ __forceinline__ const Step& of_step(int32_t step) const { return steps_[step % 2]; }

 private:
  // The first of the thread's groups in a step.
  static __device__ __forceinline__ int32_t own(int32_t thread) {
    return thread / Step::kRows * kOwn;
  }

  Step* steps_;
  const LaneTile& tile_;
  const Codes& codes_;
  const int32_t* inputs_;
};

/// The values of the lane's four rows of its warp's pair of tiles, in the order of the results.
template <class Format>
__device__ __forceinline__ void rows_of_lane(const float* block, int32_t thread, float (&out)[4]) {
  const int32_t lane = thread % kWarp;
  const float* tile = block + thread / kWarp % kWarpPairs * kWarp + lane / 16 * kTileRows;
  if constexpr (Format::kLaneBytes == 16) {
    const float4 v = *reinterpret_cast<const float4*>(tile + lane / 4 % 4 * 4);
    out[0] = v.x;
    out[1] = v.y;
    out[2] = v.z;
    out[3] = v.w;
  } else {
    MOE_CUDA_UNROLL
    for (int m = 0; m < 2; ++m) {
      const float2 v = *reinterpret_cast<const float2*>(tile + 8 * m + lane / 4 % 4 * 2);
      out[2 * m] = v.x;
      out[2 * m + 1] = v.y;
    }
  }
}

/// Results of a warp: floats, scaled group by group.
template <class Format, int kN>
class GroupResults {
  using Layout = typename Format::Layout;
  static constexpr int kTokens = kTokensOf<kN>;
  static constexpr int kParts = kUnitGroups<Format>;
  static_assert(kTokens == StepScales<Layout>::kTokens);

 public:
  /// All inputs of the warp's pair of tiles and its tokens.
  __device__ __forceinline__ void add_inputs(const CodeStages<kTokens>& codes,
                                             const ScaleStages<Format>& scales,
                                             const LaneTile& tile, int32_t first_token, bool busy) {
    const int32_t n_steps = (tile.weight.matrix.cols + kStep - 1) / kStep;
    typename Format::Unit next[kStepGroups];
    MOE_CUDA_UNROLL
    for (int j = 0; j < kStepGroups; ++j) next[j] = load_unit<Format, false>(tile, 0, j);
    MOE_CUDA_UNROLL
    for (int s = 0; s < kStages - 1; ++s) codes.fetch(s, n_steps);
    scales.store(0, scales.load(0));
    MOE_CUDA_NO_UNROLL
    for (int32_t step = 0; step < n_steps; ++step) {
      cp_async_wait<kStages - 2>();
      __syncthreads();
      codes.fetch(step + kStages - 1, n_steps);
      const auto later = scales.load(step + 1);
      if (busy) {
        MOE_CUDA_UNROLL
        for (int j = 0; j < kStepGroups; ++j) {
          const Fragment f = Format::fragment(next[j]);
          next[j] = load_unit<Format, false>(tile, step + 1, j);
          add_unit(f, codes.stage_of(step), scales.of_step(step), j, first_token);
        }
      }
      scales.store(step + 1, later);
    }
    cp_async_wait<0>();
  }
  __device__ __forceinline__ void bits_of(int n, int32_t (&out)[2][4]) const {
    MOE_CUDA_UNROLL
    for (int e = 0; e < 8; ++e) out[e / 4][e % 4] = __float_as_int(totals_[n][e / 4][e % 4]);
  }

 private:
  __device__ __forceinline__ void add_unit(const Fragment& f, const uint8_t* stage,
                                           const StepScales<Layout>& scales, int j,
                                           int32_t first_token) {
    const int32_t thread = forgotten_thread();
    const int32_t lane = thread % kWarp;
    float scale[kParts][4];
    float minimum[kParts][4] = {};
    MOE_CUDA_UNROLL
    for (int h = 0; h < kParts; ++h) {
      const int group = j * kParts + h;
      rows_of_lane<Format>(scales.scales[group], thread, scale[h]);
      if constexpr (Layout::kMinimums) {
        rows_of_lane<Format>(scales.minimums[group], thread, minimum[h]);
      }
    }
    MOE_CUDA_UNROLL
    for (int n = 0; n < kN; ++n) {
      const int32_t token = first_token + 8 * n;
      const uint8_t* from = stage + place_of(token + lane / 4, 2 * j + lane % 4 / 2);
      const uint2 x = load_shared_in_turn_8(from + lane % 2 * 8);
      const float2 sx = *reinterpret_cast<const float2*>(&scales.inputs[j][token + lane % 4 * 2]);
      MOE_CUDA_UNROLL
      for (int h = 0; h < kParts; ++h) {
        const uint2 own = codes_of_group<Format>(x, h);
        int32_t sums[2][4] = {};
        multiply<false>(sums, f, own.x, own.y);
        const int2 inputs = Layout::kMinimums ? input_sums(own) : int2{0, 0};
        MOE_CUDA_UNROLL
        for (int i = 0; i < 4; ++i) {
          float(&total)[4] = totals_[n][i / 2];
          const int32_t(&sum)[4] = sums[i / 2];
          const int at = i % 2 * 2;
          total[at] =
              add_group<Layout>(total[at], sum[at], inputs.x, sx.x, scale[h][i], minimum[h][i]);
          total[at + 1] = add_group<Layout>(total[at + 1], sum[at + 1], inputs.y, sx.y, scale[h][i],
                                            minimum[h][i]);
        }
      }
    }
  }

  float totals_[kN][2][4] = {};
};

}  // namespace moe::cuda
