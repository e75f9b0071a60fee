// SPDX-License-Identifier: MIT
// Matrix products of float weights and float activations with few outputs (routers): a block
// computes 16 rows of weights for 16 rows of activations. Its warps sum segments of 32 inputs in
// turn; the segments' sums are added in ascending order, so that sums are bit-identical to
// matmul_any.cu.

#include "kernels/cuda/matmul/decode.cuh"
#include "kernels/cuda/matmul/matmul.cuh"
#include "kernels/cuda/warp.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSegment = 32;
constexpr int kTokens = 16;
constexpr int kOwnRows = 4;    // of a lane, as are
constexpr int kOwnTokens = 2;  // these
static_assert(kTileRows / kOwnRows * (kTokens / kOwnTokens) == kWarp);
static_assert(kTileRows * kTokens == kThreads);

/// A warp's segment as floats, inputs by rows and inputs by tokens.
struct Segment {
  alignas(16) float weights[kSegment][kTileRows];
  alignas(16) float x[kSegment][kTokens + 2];  // stores then meet in two banks, not eight
};
/// The sums of the warps' segments.
struct Partial {
  alignas(16) float of_warp[kWarps][kTokens][kTileRows];
};

/// Loads a warp's segments; load_weights() and load_x() run ahead of store().
template <class Values>
class Loader {
 public:
  __device__ __forceinline__ Loader(const ProductArgs& a, const Matrix& m, int32_t tile,
                                    const RowChunk& chunk)
      : tile_(m.tiles + tile * m.tile_stride), cols_(m.cols) {
    aligned_ = a.in.ld_x % 4 == 0 && reinterpret_cast<uintptr_t>(a.in.x) % 16 == 0;
    MOE_CUDA_UNROLL
    for (int i = 0; i < kTokens / 4; ++i) {
      const int32_t row = chunk.begin + token(i);
      x_[i] = row < chunk.end ? a.in.x + input_row(a.rows, row) * a.in.ld_x : nullptr;
    }
  }
  /// The segment from input k on.
  __device__ __forceinline__ void load_weights(int32_t k) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      weights_[i] = {0, 0, 0, 0};
      if (k + input(i) < cols_) weights_[i] = Values::at(tile_, k + input(i), lane_id() % 4);
    }
  }
  __device__ __forceinline__ void load_x(int32_t k) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kTokens / 4; ++i) {
      inputs_[i] = {0, 0, 0, 0};
      if (x_[i] != nullptr) inputs_[i] = load_four(x_[i], k + quad(), cols_, aligned_);
    }
  }
  __device__ __forceinline__ void store(Segment& s) const {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<float4*>(&s.weights[input(i)][lane_id() % 4 * 4]) = weights_[i];
    }
    MOE_CUDA_UNROLL
    for (int i = 0; i < kTokens / 4; ++i) {
      s.x[quad()][token(i)] = inputs_[i].x;
      s.x[quad() + 1][token(i)] = inputs_[i].y;
      s.x[quad() + 2][token(i)] = inputs_[i].z;
      s.x[quad() + 3][token(i)] = inputs_[i].w;
    }
  }

 private:
  static __device__ __forceinline__ int32_t input(int i) { return lane_id() / 4 + 8 * i; }
  static __device__ __forceinline__ int32_t quad() { return lane_id() % 8 * 4; }
  static __device__ __forceinline__ int32_t token(int i) { return lane_id() / 8 + 4 * i; }

  const uint8_t* tile_;
  int32_t cols_;
  bool aligned_;
  const float* x_[kTokens / 4];
  float4 weights_[4];
  float4 inputs_[kTokens / 4];
};

/// The chains of a segment of n inputs, for the lane's rows and tokens.
__device__ __forceinline__ void sum_segment(const Segment& s, int32_t n, float (*to)[kTileRows]) {
  const int32_t row = lane_id() % 4 * kOwnRows;
  const int32_t token = lane_id() / 4 * kOwnTokens;
  float sum[kOwnTokens][kOwnRows] = {};
  const auto add = [&](int32_t k) {
    const float4 w = *reinterpret_cast<const float4*>(&s.weights[k][row]);
    const float2 x = *reinterpret_cast<const float2*>(&s.x[k][token]);
    const float each[kOwnTokens] = {x.x, x.y};
    MOE_CUDA_UNROLL
    for (int t = 0; t < kOwnTokens; ++t) {
      sum[t][0] = fused(w.x, each[t], sum[t][0]);
      sum[t][1] = fused(w.y, each[t], sum[t][1]);
      sum[t][2] = fused(w.z, each[t], sum[t][2]);
      sum[t][3] = fused(w.w, each[t], sum[t][3]);
    }
  };
  if (n == kSegment) {
    MOE_CUDA_UNROLL
    for (int k = 0; k < kSegment; ++k) add(k);
  } else {
    MOE_CUDA_NO_UNROLL
    for (int32_t k = 0; k < n; ++k) add(k);
  }
  MOE_CUDA_UNROLL
  for (int t = 0; t < kOwnTokens; ++t) {
    *reinterpret_cast<float4*>(&to[token + t][row]) =
        make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
  }
}

template <class Values>
__global__ void __launch_bounds__(kThreads, 2) narrow_rows(const ProductArgs a) {
  MOE_CUDA_SHARED(Segment, segments, [kWarps]);
  MOE_CUDA_SHARED(Partial, partial);
  static_assert(sizeof(segments) + sizeof(partial) <= 47 * 1024, "48 KiB need a permission");
  const bool known = weights_are_known(a.rows);
  if (!known) wait_for_previous();
  RowChunk chunk;
  if (!find_chunk<kTokens>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  int32_t tile;
  const MatmulOut out = find_out(a, static_cast<int32_t>(blockIdx.y), &tile);
  const Weight weight = find_weight(out, chunk.matrix);
  const Matrix& m = weight.matrix;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t warp = thread / kWarp;
  const int32_t token = thread / kTileRows;  // that this thread finishes, as
  const int32_t row = thread % kTileRows;    // this

  Loader<Values> loader(a, m, tile, chunk);
  loader.load_weights(warp * kSegment);
  if (known) wait_for_previous();
  loader.load_x(warp * kSegment);
  constexpr int32_t kRound = kWarps * kSegment;  // inputs
  float total = 0;
  MOE_CUDA_NO_UNROLL
  for (int32_t round = 0; round < m.cols; round += kRound) {
    const int32_t k = round + warp * kSegment;
    if (k < m.cols) {
      loader.store(segments[warp]);
      __syncwarp();
      loader.load_weights(k + kRound);
      loader.load_x(k + kRound);
      sum_segment(segments[warp], m.cols - k < kSegment ? m.cols - k : kSegment,
                  partial.of_warp[warp]);
    }
    __syncthreads();
    MOE_CUDA_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      if (round + w * kSegment < m.cols) total = total + partial.of_warp[w][token][row];
    }
    __syncthreads();
  }
  const int32_t at = tile * kTileRows + row;
  const int32_t to = chunk.begin + token;
  if (at >= m.rows || to >= chunk.end) return;
  finish(out, total * weight_scale(m, at, 0) + bias_of(weight, at), out.y + to * out.ld_y + at);
}

}  // namespace

cudaError_t product_floats_narrow(cudaStream_t stream, ProductArgs args) {
  int64_t y = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    args.first_y[i] = static_cast<int32_t>(y);
    y += n_tiles(args.outs[i].weight.matrix);
  }
  const auto start = [&](void (*kernel)(ProductArgs)) {
    const int64_t chunks = n_chunks(args.rows, kTokens);
    return launch(kernel,
                  {dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(y)), kThreads, 0},
                  stream, args);
  };
  switch (args.outs[0].weight.matrix.format) {
    case FormatId::kF32:
      return start(narrow_rows<F32Values>);
    case FormatId::kBf16:
      return start(narrow_rows<Bf16Values>);
    case FormatId::kF16:
      return start(narrow_rows<F16Values>);
    default:  // no such kernel
      return product_any(stream, args);
  }
}

}  // namespace moe::cuda
