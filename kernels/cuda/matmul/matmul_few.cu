// SPDX-License-Identifier: MIT
// Matrix products of ternary2 and int8 with few rows: limited by weight bandwidth. If there are too
// few tiles to occupy the GPU, warps of a block share the inputs of a pair of tiles (split K);
// their integer sums are added in shared memory, so the result does not depend on the split.

#include "kernels/cuda/matmul/matmul_few.cuh"

namespace moe::cuda {
namespace {

/// Rows of activations as offsets, in pieces of 16 codes.
inline constexpr uint32_t kNoRow = ~0u;
__device__ __forceinline__ uint32_t piece_of(const ProductArgs& a, const Codes& codes, int32_t row,
                                             int32_t end) {
  if (row >= end) return kNoRow;
  return static_cast<uint32_t>(input_row(a.rows, row) * (codes.ld / 16) +
                               static_cast<int32_t>(threadIdx.x % 4));
}

/// 16 codes of half h of a step, of one activation row; zeros if absent.
__device__ __forceinline__ uint4 load_codes(const Codes& codes, uint32_t row, int32_t step, int h,
                                            bool valid) {
  if (row == kNoRow || !valid) return {0, 0, 0, 0};
  const uint32_t piece = row + static_cast<uint32_t>(step) * (kStep / 16);
  return load_in_turn(codes.codes + uint64_t{piece} * 16 + h * 64);
}

/// The codes for a step. With one tile of rows they are loaded one step ahead; with more, registers
/// do not suffice.
template <int kN>
class StepCodes {
 public:
  __device__ __forceinline__ StepCodes(const Codes& codes, const uint32_t (&rows)[kN], int32_t step,
                                       int32_t n_steps)
      : codes_(codes), rows_(rows), n_steps_(n_steps) {
    move_to(step);
  }
  /// The codes of tile n and half h, for the step of the last move_to().
  __device__ __forceinline__ uint4 at(int n, int h) const {
    if constexpr (kAhead) {
      return ahead_[n][h];
    } else {
      return load_codes(codes_, rows_[n], step_, h, true);
    }
  }
  __device__ __forceinline__ void move_to(int32_t step) {
    step_ = step;
    if constexpr (kAhead) {
      MOE_CUDA_UNROLL
      for (int i = 0; i < 2 * kN; ++i) {
        ahead_[i / 2][i % 2] = load_codes(codes_, rows_[i / 2], step, i % 2, step < n_steps_);
      }
    }
  }

 private:
  static constexpr bool kAhead = kN == 1;
  const Codes& codes_;
  const uint32_t (&rows_)[kN];
  int32_t n_steps_;
  int32_t step_ = 0;
  uint4 ahead_[kAhead ? kN : 1][2];
};

/// Sums of one activation scale for all inputs.
template <class Format, int kN>
struct WholeSums {
  int32_t sums[kN][2][4] = {};

  __device__ __forceinline__ void add(const typename Format::Unit (&w)[Format::kUnits],
                                      const StepCodes<kN>& x) {
    MOE_CUDA_UNROLL
    for (int h = 0; h < 2; ++h) {
      Fragment f[2];
      half_step<Format, false>(w, h, f);
      MOE_CUDA_UNROLL
      for (int n = 0; n < kN; ++n) multiply_half<Format::kUnsigned>(sums[n], f, x.at(n, h));
    }
  }
  __device__ __forceinline__ void finish() {}
};

/// With one activation tile there are registers for a sum per field: codes remain unshifted, and
/// the sums are 4^field times too large (65,536 / 4 * 2 * 64 * 128 fits in 31 bits).
template <>
struct WholeSums<Ternary2Mma, 1> {
  int32_t sums[1][2][4] = {};
  int32_t fields[4][2][4] = {};

  __device__ __forceinline__ void add(const Ternary2Mma::Unit (&w)[1], const StepCodes<1>& x) {
    const uint4 low = x.at(0, 0);
    const uint4 high = x.at(0, 1);
    add_field<0>(w[0], low.x, high.x);
    add_field<1>(w[0], low.y, high.y);
    add_field<2>(w[0], low.z, high.z);
    add_field<3>(w[0], low.w, high.w);
  }
  template <int kField>
  __device__ __forceinline__ void add_field(const Ternary2Mma::Unit& w, uint32_t b0, uint32_t b1) {
    constexpr uint32_t kMask = 0x03030303u << (2 * kField);
    const Fragment f = {{{w.low.x & kMask, w.low.y & kMask, w.high.x & kMask, w.high.y & kMask},
                         {w.low.z & kMask, w.low.w & kMask, w.high.z & kMask, w.high.w & kMask}}};
    multiply<true>(fields[kField], f, b0, b1);
  }
  __device__ __forceinline__ void finish() {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 8; ++i) {
      sums[0][i / 4][i % 4] = fields[0][i / 4][i % 4] + (fields[1][i / 4][i % 4] >> 2) +
                              (fields[2][i / 4][i % 4] >> 4) + (fields[3][i / 4][i % 4] >> 6);
    }
  }
};

/// The warp's part of the sums: steps part, part + split, ...
template <class Format, int kN>
__device__ __forceinline__ void sum_steps(WholeSums<Format, kN>& sums, Ahead<Format>& ahead,
                                          const LaneTile& tile, const Codes& a8,
                                          const uint32_t (&rows)[kN], int32_t part, int32_t split) {
  using Weights = Ahead<Format>;
  constexpr bool kRefillFirst = kN <= 2;  // if registers suffice for both
  const int32_t n_steps = (tile.weight.matrix.cols + kStep - 1) / kStep;
  StepCodes<kN> codes(a8, rows, part, n_steps);
  MOE_CUDA_NO_UNROLL
  for (int32_t first = part; first < n_steps; first += split * Weights::kSteps) {
    MOE_CUDA_UNROLL
    for (int j = 0; j < Weights::kSteps; ++j) {
      const int32_t step = first + j * split;
      if (step >= n_steps) continue;
      typename Format::Unit w[Format::kUnits];
      ahead.take(j, w);
      if (kRefillFirst) ahead.refill(tile, j, step + split * Weights::kSteps);
      const StepCodes<kN> x = codes;
      codes.move_to(step + split);
      sums.add(w, x);
      if (!kRefillFirst) ahead.refill(tile, j, step + split * Weights::kSteps);
    }
  }
  sums.finish();
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
    pair = pair * (kWarps / a.split) + static_cast<int32_t>(threadIdx.x / kWarp) / a.split;
    p.live = pair < n_pairs<kGated>(p.out.weight.matrix);
    p.tile = find_tile<Format, kGated>(a, p.out, matrix, p.live ? pair : 0);
    return p;
  }
};

template <class Format, int kN, bool kGated>
__global__ void __launch_bounds__(kThreads, 2) few_rows(const ProductArgs a) {
  const bool known = weights_are_known(a.rows);
  if (!known) wait_for_previous();
  alignas(16) MOE_CUDA_SHARED(int32_t, results, [kWarps][8 * kN][kResultStride]);
  MOE_CUDA_SHARED(float, scales, [8 * kN]);
  MOE_CUDA_SHARED(int32_t, offsets, [8 * kN]);
  RowChunk chunk;
  if (!find_chunk<8 * kN>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  const int32_t count = chunk.end - chunk.begin;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % kWarp;
  const int32_t warp = thread / kWarp;
  const int32_t part = warp % a.split;
  const auto block = static_cast<int32_t>(blockIdx.y);
  const WarpPair pair = WarpPair::find<Format, kGated>(a, block, chunk.matrix);
  const Codes codes = codes_of(a.in, ActPrecision::kA8);
  Ahead<Format> ahead;
  if (pair.live) ahead.start(pair.tile, [&](int i) { return part + i * a.split; });
  if (known) wait_for_previous();

  if (thread < count) {
    const int32_t input = input_row(a.rows, chunk.begin + thread);
    scales[thread] = codes.scales[input];
    offsets[thread] = Format::kUnsigned ? codes.sums[input] : 0;  // ternary codes are weight + 1
  }
  float sw = 0;
  float bias = kNoBias;
  if (pair.tile.valid) {
    sw = weight_scale(pair.tile.weight.matrix, pair.tile.row, 0);
    bias = bias_of(pair.tile.weight, pair.tile.row);
  }
  uint32_t rows[kN];
  MOE_CUDA_UNROLL
  for (int n = 0; n < kN; ++n) {
    rows[n] = piece_of(a, codes, chunk.begin + 8 * n + lane / 4, chunk.end);
  }

  if (pair.live) {
    WholeSums<Format, kN> sums;
    sum_steps<Format, kN>(sums, ahead, pair.tile, codes, rows, part, a.split);
    MOE_CUDA_UNROLL
    for (int n = 0; n < kN; ++n) put_results<Format>(&results[warp][8 * n][0], sums.sums[n]);
  }
  __syncthreads();
  if (!pair.live) return;
  const auto product = [&](int32_t token) {
    int32_t sum = -offsets[token];
    for (int32_t p = 0; p < a.split; ++p) sum += results[warp - part + p][token][lane];
    return static_cast<float>(sum) * (scales[token] * sw);
  };
  // Recomputed; the matrix is irrelevant now.
  const WarpPair again = WarpPair::find<Format, kGated>(a, forgotten(block), 0);
  write_tokens<kGated>(a, again.out, {again.tile.row, again.tile.valid, bias}, chunk.begin, part,
                       a.split, count, product);
}

// --- Scales for every block of inputs: a8_block, and weights with groups ---

/// Distribution of steps over a block's warps: a warp takes whole scale blocks (or two of 64), and
/// a round is 32 scale blocks, the maximum that fits.
struct ScaleRounds {
  int32_t size;   // inputs of a scale block: 64, 128 or 256
  int32_t steps;  // per warp in total
  int32_t round;  // per warp and round

  __device__ __forceinline__ explicit ScaleRounds(const Matrix& m)
      : size(m.scale_kind == ScaleKind::kGroup ? m.group : kActBlock) {
    const int32_t span = size < kStep ? kStep : size;
    const int32_t items = (m.cols + span - 1) / span;
    steps = (items + kWarps - 1) / kWarps * (span / kStep);
    round = size == 256 ? 8 : size == 128 ? 4 : 2;
  }
  __device__ __forceinline__ int32_t step_of(int32_t i, int32_t warp) const {
    return size == 256 ? (i / 2 * kWarps + warp) * 2 + i % 2 : i * kWarps + warp;
  }
  __device__ __forceinline__ bool ends(int32_t i) const { return size != 256 || i % 2 == 1; }
};
constexpr int kRoundBlocks = 32;

/// The chain of scaled sums of one output, blocks ascending.
struct ScaledChain {
  const Matrix& m;
  const float* sx;  // of the token
  int32_t row;
  bool grouped;
  bool per_row;  // one activation scale
  float total = 0;

  __device__ __forceinline__ void add(int32_t sum, int32_t block, int32_t size) {
    const float sw = grouped ? weight_scale(m, row, block) : 1.0f;
    const float scale = sx[per_row ? 0 : block * size / kActBlock];
    total = fused(static_cast<float>(sum), scale * sw, total);
  }
};

template <class Format, bool kGated>
__global__ void __launch_bounds__(kThreads, 2) few_rows_scaled(const ProductArgs a) {
  const bool known = weights_are_known(a.rows);
  if (!known) wait_for_previous();
  alignas(16) MOE_CUDA_SHARED(int32_t, results, [kRoundBlocks][8][kResultStride]);
  RowChunk chunk;
  if (!find_chunk<8>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  const int32_t count = chunk.end - chunk.begin;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % kWarp;
  const int32_t warp = thread / kWarp;
  int32_t pair;
  const MatmulOut out = find_out(a, static_cast<int32_t>(blockIdx.y), &pair);
  const LaneTile tile = find_tile<Format, kGated>(a, out, chunk.matrix, pair);
  const Matrix& m = tile.weight.matrix;
  const Codes codes = codes_of(a.in, m.act);
  const int32_t n_steps = (m.cols + kStep - 1) / kStep;
  const ScaleRounds rounds(m);
  const bool grouped = m.scale_kind == ScaleKind::kGroup;
  Ahead<Format> ahead;
  ahead.start(tile, [&](int i) { return rounds.step_of(i, warp); });
  if (known) wait_for_previous();

  const uint32_t x_row = piece_of(a, codes, chunk.begin + lane / 4, chunk.end);
  // Warp w finishes token w, lane r row r.
  const int32_t own = input_row(a.rows, chunk.begin + (warp < count ? warp : 0));
  const int32_t row = tile.valid ? tile.row : 0;
  ScaledChain chain{m, codes.scales + int64_t{own} * n_act_scales(m), row, grouped,
                    m.act == ActPrecision::kA8};
  int32_t sums[2][4] = {};
  MOE_CUDA_NO_UNROLL
  for (int32_t first = 0; first < rounds.steps; first += Ahead<Format>::kSteps) {
    MOE_CUDA_UNROLL
    for (int j = 0; j < Ahead<Format>::kSteps; ++j) {
      const int32_t i = first + j;
      if (i >= rounds.steps) continue;
      const int32_t step = rounds.step_of(i, warp);
      typename Format::Unit w[Format::kUnits];
      ahead.take(j, w);
      ahead.refill(tile, j, rounds.step_of(i + Ahead<Format>::kSteps, warp));
      const uint4 x[2] = {load_codes(codes, x_row, step, 0, step < n_steps),
                          load_codes(codes, x_row, step, 1, step < n_steps)};
      const int32_t slot = step * kStep / rounds.size % kRoundBlocks;
      MOE_CUDA_UNROLL
      for (int h = 0; h < 2; ++h) {
        Fragment f[2];
        half_step<Format, true>(w, h, f);
        multiply_half<false>(sums, f, x[h]);
        if (rounds.size == 64 || (h == 1 && rounds.ends(i))) {
          put_results<Format>(&results[rounds.size == 64 ? slot + h : slot][0][0], sums);
          MOE_CUDA_UNROLL
          for (int e = 0; e < 8; ++e) sums[e / 4][e % 4] = 0;
        }
      }
      if ((i + 1) % rounds.round != 0 && i + 1 != rounds.steps) continue;
      __syncthreads();
      if (warp < count) {
        const int32_t n_blocks = (m.cols + rounds.size - 1) / rounds.size;
        const int32_t begin = i / rounds.round * kRoundBlocks;
        const int32_t n = n_blocks - begin < kRoundBlocks ? n_blocks - begin : kRoundBlocks;
        for (int32_t b = 0; b < n; ++b) {
          chain.add(results[b][warp][lane], begin + b, rounds.size);
        }
      }
      __syncthreads();
    }
  }
  if (warp >= count) return;
  const float v = grouped ? chain.total : chain.total * weight_scale(m, row, 0);
  write_token_of_warp<kGated>(a, out, tile, chunk, v);
}

// --- Launching ---

/// Warps that a large GPU runs at once: 132 multiprocessors with 16 each.
constexpr int64_t kMostWarps = 132 * 16;

/// Warps per pair of tiles: as many as run at once, for a second wave costs more than a longer sum.
int32_t choose_split(int64_t pairs, int32_t cols) {
  const int32_t steps = (cols + kStep - 1) / kStep;
  int32_t split = 1;
  while (split < kWarps && 2 * pairs * split <= kMostWarps && 2 * split <= steps) split *= 2;
  return split;
}

template <class Format, bool kGated>
cudaError_t start_whole(cudaStream_t stream, ProductArgs& args) {
  const int64_t groups = args.rows.group != nullptr ? args.rows.max_groups : 1;
  const int64_t rows = (args.rows.rows.n + groups - 1) / groups;
  int64_t pairs = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    pairs += pairs_of(args.outs[i].weight.matrix, kGated);
  }
  const int64_t chunk = rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
  const int64_t busy = groups * ((rows + chunk - 1) / chunk);
  args.split = choose_split(pairs * busy, args.outs[0].weight.matrix.cols);
  const int32_t y = place_outs(args, kWarps / args.split);
  if (chunk == 8) return start_few<8>(few_rows<Format, 1, kGated>, stream, args, y);
  if (chunk == 16) return start_few<16>(few_rows<Format, 2, kGated>, stream, args, y);
  return start_few<32>(few_rows<Format, 4, kGated>, stream, args, y);
}

template <class Format, bool kGated>
cudaError_t start_format(cudaStream_t stream, ProductArgs& args) {
  const Matrix& m = args.outs[0].weight.matrix;
  if (m.act == ActPrecision::kA8 && m.scale_kind != ScaleKind::kGroup) {
    return start_whole<Format, kGated>(stream, args);
  }
  const int32_t y = place_outs(args, 1);
  return start_few<8>(few_rows_scaled<Format, kGated>, stream, args, y);
}

}  // namespace

cudaError_t product_few(cudaStream_t stream, ProductArgs args) {
  if (args.outs[0].weight.matrix.format == FormatId::kTernary2) {
    return args.gated ? start_format<Ternary2Mma, true>(stream, args)
                      : start_format<Ternary2Mma, false>(stream, args);
  }
  return args.gated ? start_format<Int8Mma, true>(stream, args)
                    : start_format<Int8Mma, false>(stream, args);
}

}  // namespace moe::cuda
