// SPDX-License-Identifier: MIT
#pragma once
// Matrix products with many rows. A block computes 128 rows of weights (64 of gate and 64 of up)
// for 64 or 128 rows of activations. Activations go through shared memory, three steps deep;
// weights are read to registers undecoded, then decoded for 4 or 8 tiles of activations.

#include "kernels/cuda/matmul/matmul_many_groups.cuh"

namespace moe::cuda {

/// Results of a warp with one scale for all inputs: exact sums.
template <int kN>
struct WholeResults {
  int32_t sums[kN][2][4] = {};

  __device__ __forceinline__ void half_done(int32_t, int) {}
  __device__ __forceinline__ void bits_of(int n, int32_t (&out)[2][4]) const {
    MOE_CUDA_UNROLL
    for (int e = 0; e < 8; ++e) out[e / 4][e % 4] = sums[n][e / 4][e % 4];
  }
};

/// Results with scales for every block of inputs: floats, one fused multiply-add per block.
template <int kN>
struct ScaledResults {
  int32_t sums[kN][2][4] = {};
  float totals[kN][2][4] = {};
  const Matrix& m;
  const float* scales;    // for all rows of activations
  const int32_t* inputs;  // input rows of the warp's tokens; -1: none
  int32_t size;           // inputs per scale block
  int32_t row;            // first of the lane's four, in the matrix; -1: no weight scales

  __device__ __forceinline__ void half_done(int32_t step, int h) {
    const int32_t done = step * kStep + (h + 1) * (kStep / 2);
    if (done % size == 0) close(done / size - 1);
  }
  __device__ __forceinline__ void last_done() {
    const int32_t done = (m.cols + kStep - 1) / kStep * kStep;
    if (done % size != 0) close(done / size);
  }
  __device__ __forceinline__ void close(int32_t block) {
    // A group of 64 after the last input: its sum is 0 and it has no scale.
    if (block * size >= m.cols) return;
    const bool grouped = m.scale_kind == ScaleKind::kGroup;
    const bool per_row = m.act == ActPrecision::kA8;
    const int32_t n_scales = n_act_scales(m);
    float sw[4];
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      sw[i] = grouped && row >= 0 ? weight_scale(m, row + i, block) : 1.0f;
    }
    MOE_CUDA_UNROLL
    for (int i = 0; i < 2 * kN; ++i) {
      const int n = i / 2;
      const int t = i % 2;
      const int32_t input = inputs[8 * n + 2 * static_cast<int32_t>(threadIdx.x % 4) + t];
      const int64_t place = int64_t{input} * n_scales + (per_row ? 0 : block * size / kActBlock);
      const float sx = input >= 0 ? scales[place] : 0.0f;
      MOE_CUDA_UNROLL
      for (int r = 0; r < 4; ++r) {
        float& total = totals[n][r / 2][r % 2 * 2 + t];
        int32_t& sum = sums[n][r / 2][r % 2 * 2 + t];
        total = fused(static_cast<float>(sum), sx * sw[r], total);
        sum = 0;
      }
    }
  }
  __device__ __forceinline__ void bits_of(int n, int32_t (&out)[2][4]) const {
    MOE_CUDA_UNROLL
    for (int e = 0; e < 8; ++e) out[e / 4][e % 4] = __float_as_int(totals[n][e / 4][e % 4]);
  }
};

/// All inputs of the warp's pair of tiles and its tokens.
template <class Format, int kN, bool kScaled, class Results>
__device__ __forceinline__ void sum_inputs(Results& results, const CodeStages<kTokensOf<kN>>& codes,
                                           const LaneTile& tile, int32_t first_token, bool busy) {
  const int32_t n_steps = (tile.weight.matrix.cols + kStep - 1) / kStep;
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  typename Format::Unit next[Format::kUnits];
  MOE_CUDA_UNROLL
  for (int u = 0; u < Format::kUnits; ++u) next[u] = load_unit<Format, false>(tile, 0, u);
  MOE_CUDA_UNROLL
  for (int s = 0; s < kStages - 1; ++s) codes.fetch(s, n_steps);
  MOE_CUDA_NO_UNROLL
  for (int32_t step = 0; step < n_steps; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();
    codes.fetch(step + kStages - 1, n_steps);
    if (!busy) continue;
    const uint8_t* stage = codes.stage_of(step);
    MOE_CUDA_UNROLL
    for (int h = 0; h < 2; ++h) {
      Fragment f[2];
      half_step<Format, kScaled>(next, h, f);
      // Ternary fragments are decoded copies: their words can be replaced immediately.
      if (Format::kUnits == 1 && h == 1) next[0] = load_unit<Format, false>(tile, step + 1, 0);
      MOE_CUDA_UNROLL
      for (int n = 0; n < kN; ++n) {
        const int32_t token = first_token + 8 * n + lane / 4;
        const uint4 x = load_shared_in_turn(stage + place_of(token, 4 * h + lane % 4));
        multiply_half<Format::kUnsigned && !kScaled>(results.sums[n], f, x);
      }
      if constexpr (Format::kUnits != 1) {
        next[2 * h] = load_unit<Format, false>(tile, step + 1, 2 * h);
        next[2 * h + 1] = load_unit<Format, false>(tile, step + 1, 2 * h + 1);
      }
      results.half_done(step, h);
    }
  }
  cp_async_wait<0>();
}

/// The pair of tiles of this warp; blockIdx.y as `index`.
struct WarpPair {
  MatmulOut out;
  LaneTile tile;
  bool live;  // the pair exists

  template <class Format, bool kGated>
  static __device__ __forceinline__ WarpPair find(const ProductArgs& a, int32_t index,
                                                  int32_t matrix) {
    WarpPair p;
    int32_t pair;
    p.out = find_out(a, index, &pair);
    pair = pair * kWarpPairs + static_cast<int32_t>(threadIdx.x / kWarp % kWarpPairs);
    p.live = pair < n_pairs<kGated>(p.out.weight.matrix);
    p.tile = find_tile<Format, kGated>(a, p.out, matrix, p.live ? pair : 0);
    return p;
  }
};

/// Location of a warp's results once the stages are unused.
__device__ __forceinline__ int32_t* results_of_warp(uint8_t* shared) {
  return reinterpret_cast<int32_t*>(shared) +
         forgotten_thread() / kWarp * kPassTokens * kResultStride;
}

/// Blocks per multiprocessor: as registers permit.
template <int kN, bool kScaled>
[[maybe_unused]] constexpr int kBlocks = kScaled || kN == 8 ? 1 : 2;

template <class Format, int kN, bool kScaled, bool kGated>
__global__ void __launch_bounds__(kThreads, (kBlocks<kN, kScaled>)) many_rows(const ProductArgs a) {
  wait_for_previous();
  constexpr int kTokens = kTokensOf<kN>;
  MOE_CUDA_SHARED(int32_t, inputs, [kTokens]);
  MOE_CUDA_SHARED(RowChunk, kept);
  uint8_t* shared = dynamic_shared();
  RowChunk chunk;
  if (!find_chunk<kTokens>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const WarpPair pair =
      WarpPair::find<Format, kGated>(a, static_cast<int32_t>(blockIdx.y), chunk.matrix);
  const Matrix& m = pair.tile.weight.matrix;
  const Codes codes = codes_of(a.in, m.act);
  if (thread == 0) kept = chunk;
  if (thread < kTokens) {
    const int32_t row = chunk.begin + thread;
    inputs[thread] = row < chunk.end ? input_row(a.rows, row) : -1;
  }
  __syncthreads();
  const CodeStages<kTokens> stages{shared, inputs, codes.codes,
                                   static_cast<int32_t>(codes.ld / 16)};
  const int32_t first_token = thread / kWarp / kWarpPairs * 8 * kN;  // of this warp
  const bool busy = pair.live && first_token < chunk.end - chunk.begin;
  const auto put = [&](const auto& from, int pass) {
    int32_t* results = results_of_warp(shared);
    MOE_CUDA_UNROLL
    for (int n = 0; n < kPassTokens / 8; ++n) {
      int32_t bits[2][4];
      from.bits_of(pass * (kPassTokens / 8) + n, bits);
      put_results<Format>(results + 8 * n * kResultStride, bits);
    }
    __syncwarp();
  };
  // Finishes the results of put(); recomputes everything it needs.
  const auto write = [&](int pass) {
    const RowChunk c = kept;
    const WarpPair p =
        WarpPair::find<Format, kGated>(a, forgotten(static_cast<int32_t>(blockIdx.y)), c.matrix);
    const Codes x = codes_of(a.in, p.tile.weight.matrix.act);
    const int32_t* results = results_of_warp(shared) + forgotten_thread() % kWarp;
    const int32_t first = forgotten_thread() / kWarp / kWarpPairs * 8 * kN + pass * kPassTokens;
    const int32_t left = c.end - c.begin - first;
    const bool scaled_inside = kScaled && p.tile.weight.matrix.scale_kind == ScaleKind::kGroup;
    float sw = 1;
    float bias = kNoBias;
    if (p.tile.valid) {
      if (!scaled_inside) sw = weight_scale(p.tile.weight.matrix, p.tile.row, 0);
      bias = bias_of(p.tile.weight, p.tile.row);
    }
    write_tokens<kGated>(a, p.out, {p.tile.row, p.tile.valid, bias}, c.begin + first, 0, 1,
                         left < kPassTokens ? left : kPassTokens, [&](int32_t token) {
                           const int32_t bits = results[token * kResultStride];
                           if (kScaled) return __int_as_float(bits) * sw;
                           const int32_t input = inputs[first + token];
                           // Ternary codes are weight + 1.
                           const int32_t sum = Format::kUnsigned ? bits - x.sums[input] : bits;
                           return static_cast<float>(sum) * (x.scales[input] * sw);
                         });
    __syncwarp();
  };

  if constexpr (kInTile<Format>) {
    GroupResults<Format, kN> sums;
    const ScaleStages<Format> scales(shared + kStages * kTokens * kStep, pair.tile, codes, inputs);
    sums.add_inputs(stages, scales, pair.tile, first_token, busy);
    __syncthreads();
    if (!busy) return;
    put(sums, 0);
    write(0);
  } else if constexpr (kScaled) {
    static_assert(8 * kN <= kPassTokens || !kScaled);
    const int32_t first_row = pair.tile.row / kTileRows * kTileRows + thread / 4 % 4 * 4;
    ScaledResults<kN> sums{{},
                           {},
                           m,
                           codes.scales,
                           inputs + first_token,
                           m.scale_kind == ScaleKind::kGroup ? m.group : kActBlock,
                           first_row < m.rows ? first_row / 4 * 4 : -1};
    sum_inputs<Format, kN, true>(sums, stages, pair.tile, first_token, busy);
    __syncthreads();
    if (!busy) return;
    sums.last_done();
    put(sums, 0);
    write(0);
  } else {
    WholeResults<kN> sums;
    sum_inputs<Format, kN, false>(sums, stages, pair.tile, first_token, busy);
    __syncthreads();
    if (!busy) return;
    MOE_CUDA_UNROLL
    for (int pass = 0; pass < 8 * kN / kPassTokens; ++pass) {
      put(sums, pass);
      write(pass);
    }
  }
}

// --- Launching ---

template <class Format, int kN, bool kScaled, bool kGated>
cudaError_t start_many(cudaStream_t stream, const ProductArgs& args, int32_t blocks_y) {
  constexpr int kStageBytes = kStages * kTokensOf<kN> * kStep + step_scale_bytes<Format>();
  constexpr int kShared = kStageBytes > kResultBytes ? kStageBytes : kResultBytes;
  const int64_t chunks = n_chunks(args.rows, kTokensOf<kN>);
  return launch(
      many_rows<Format, kN, kScaled, kGated>,
      {dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(blocks_y)), kThreads, kShared},
      stream, args);
}

}  // namespace moe::cuda
