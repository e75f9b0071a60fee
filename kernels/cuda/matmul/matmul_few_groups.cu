// SPDX-License-Identifier: MIT
// Matrix products of formats with scales in the tile with few rows: limited by weight bandwidth.
// The warps of a block share the inputs of a pair of tiles. In a round each warp sums a step, and
// then one warp per row of activations adds the scaled sums of the groups in ascending order, 32 at
// a time.

#include "kernels/cuda/matmul/matmul_few.cuh"
#include "kernels/cuda/matmul/matmul_groups.cuh"

namespace moe::cuda {

namespace {

constexpr int kTokens = kWarps;  // rows of activations per block
constexpr int kRoundGroups = kWarps * kStepGroups;
static_assert(kRoundGroups == kWarp, "a lane loads the activation scale of one of 32 groups");

/// Sums of 32 groups in shared memory: a round, or with two groups per unit half of one.
template <class Layout>
struct Round {
  alignas(16) int32_t sums[kRoundGroups][kTokens][kResultStride];
  float scales[kRoundGroups][kWarp];  // of the pair of tiles
  float minimums[Layout::kMinimums ? kRoundGroups : 1][kWarp];
  int32_t inputs[Layout::kMinimums ? kRoundGroups : 1][kTokens];
};

/// One activation row as eight codes of each group.
struct LaneCodes {
  const int8_t* p;  // null: no such row
  int32_t n_steps;

  __device__ __forceinline__ LaneCodes(const ProductArgs& a, const Codes& codes,
                                       const RowChunk& chunk, int32_t cols)
      : p(nullptr), n_steps((cols + kStep - 1) / kStep) {
    const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
    const int32_t row = chunk.begin + lane / 4;
    if (row < chunk.end) p = codes.codes + input_row(a.rows, row) * codes.ld + lane % 4 * 8;
  }
  __device__ __forceinline__ void load(int32_t step, uint2 (&x)[kStepGroups]) const {
    MOE_CUDA_UNROLL
    for (int j = 0; j < kStepGroups; ++j) {
      x[j] = {0, 0};
      if (p == nullptr || step >= n_steps) continue;
      x[j] = load_in_turn_8(p + int64_t{step} * kStep + j * kTileGroup);
    }
  }
};

/// Sums the groups of a warp's step, and puts their scales beside them. With two groups per unit
/// half of the warps fill a Round.
template <class Format, class Layout>
__device__ __forceinline__ void sum_groups(Round<Layout>& round, const LaneTile& tile, int32_t step,
                                           const typename Format::Unit (&w)[kStepGroups],
                                           const uint2 (&x)[kStepGroups]) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto warp = static_cast<int32_t>(threadIdx.x / kWarp);
  constexpr int kGroups = kStepGroups * kUnitGroups<Format>;
  MOE_CUDA_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    const int j = g / kUnitGroups<Format>;
    const int32_t group = warp * kGroups % kRoundGroups + g;
    const GroupScales s = scales_of_lane<Format>(tile, step * kGroups + g);
    round.scales[group][lane] = s.scale;
    int32_t sums[2][4] = {};
    const uint2 codes = codes_of_group<Format>(x[j], g % kUnitGroups<Format>);
    multiply<false>(sums, Format::fragment(w[j]), codes.x, codes.y);
    put_results<Format>(&round.sums[group][0][0], sums);
    if constexpr (Layout::kMinimums) {
      round.minimums[group][lane] = s.minimum;
      const int2 inputs = input_sums(codes);
      if (lane < 4) {
        round.inputs[group][2 * lane] = inputs.x;
        round.inputs[group][2 * lane + 1] = inputs.y;
      }
      __syncwarp();
    }
  }
}

/// total + a round of n groups, for token threadIdx.x / 32 and the lane's row; `sx`: the token's
/// scale of the lane's group.
template <class Layout>
__device__ __forceinline__ float add_round(const Round<Layout>& round, int32_t n, float sx,
                                           float total) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto token = static_cast<int32_t>(threadIdx.x / kWarp);
  for (int32_t g = 0; g < n; ++g) {
    const int32_t of_minimum = Layout::kMinimums ? g : 0;
    total = add_group<Layout>(total, round.sums[g][token][lane], round.inputs[of_minimum][token],
                              __shfl_sync(~0u, sx, g), round.scales[g][lane],
                              round.minimums[of_minimum][lane]);
  }
  return total;
}

template <class Format, bool kGated>
__global__ void __launch_bounds__(kThreads, 2) few_rows_grouped(const ProductArgs a) {
  const bool known = weights_are_known(a.rows);
  if (!known) wait_for_previous();
  using Layout = typename Format::Layout;
  MOE_CUDA_SHARED(Round<Layout>, round);
  static_assert(sizeof(Round<Layout>) <= 47 * 1024, "48 KiB need a permission");
  RowChunk chunk;
  if (!find_chunk<kTokens>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const auto warp = static_cast<int32_t>(threadIdx.x / kWarp);
  int32_t pair;
  const MatmulOut out = find_out(a, static_cast<int32_t>(blockIdx.y), &pair);
  const LaneTile tile = find_tile<Format, kGated>(a, out, chunk.matrix, pair);
  const Matrix& m = tile.weight.matrix;
  Ahead<Format> ahead;
  ahead.start(tile, [=](int i) { return i * kWarps + warp; });
  if (known) wait_for_previous();
  const Codes codes = codes_of(a.in, m.act);
  const LaneCodes lane_codes(a, codes, chunk, m.cols);
  constexpr int kParts = kUnitGroups<Format>;
  const int32_t n_groups = (m.cols + Layout::kGroupInputs - 1) / Layout::kGroupInputs;
  const int32_t n_rounds = (n_groups + kParts * kRoundGroups - 1) / (kParts * kRoundGroups);
  const bool live = chunk.begin + warp < chunk.end;
  const RowScales scales(codes, m, input_row(a.rows, live ? chunk.begin + warp : chunk.begin));
  float total = 0;
  MOE_CUDA_NO_UNROLL
  for (int32_t first = 0; first < n_rounds; first += Ahead<Format>::kSteps) {
    MOE_CUDA_UNROLL
    for (int j = 0; j < Ahead<Format>::kSteps; ++j) {
      if (first + j >= n_rounds) continue;
      const int32_t step = (first + j) * kWarps + warp;
      typename Format::Unit w[kStepGroups];
      uint2 x[kStepGroups];
      lane_codes.load(step, x);
      ahead.take(j, w);
      ahead.refill(tile, j, step + Ahead<Format>::kSteps * kWarps);
      MOE_CUDA_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const int32_t begin = ((first + j) * kParts + part) * kRoundGroups;
        const float sx = begin + lane < n_groups ? scales.at((begin + lane) / kParts) : 0.0f;
        if (warp / (kWarps / kParts) == part) sum_groups<Format>(round, tile, step, w, x);
        __syncthreads();
        const int32_t n = n_groups - begin < kRoundGroups ? n_groups - begin : kRoundGroups;
        if (live) total = add_round(round, n, sx, total);
        __syncthreads();
      }
    }
  }
  if (live) write_token_of_warp<kGated>(a, out, tile, chunk, total);
}

}  // namespace

cudaError_t product_few_groups(cudaStream_t stream, ProductArgs args) {
  const int32_t y = place_outs(args, 1);
  const auto run = [&]<class Layout>() {
    using Format = GroupMma<Layout>;
    return args.gated ? start_few<kTokens>(few_rows_grouped<Format, true>, stream, args, y)
                      : start_few<kTokens>(few_rows_grouped<Format, false>, stream, args, y);
  };
  return with_group_layout(args.outs[0].weight.matrix.format, run);
}

}  // namespace moe::cuda
