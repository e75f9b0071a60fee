// SPDX-License-Identifier: MIT
// Matrix products with float activations for many rows and outputs: a block computes 64 rows
// of weights for 64 rows of activations. Sums are bit-identical to matmul_any.cu: chains of fused
// multiply-adds over segments of 32 inputs, added in ascending order.

#include "kernels/cuda/matmul/decode.cuh"
#include "kernels/cuda/matmul/matmul.cuh"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSegment = 32;
constexpr int kRows = 64;  // of weights
constexpr int kTiles = kRows / kTileRows;
constexpr int kTokens = 64;

/// One segment as floats, inputs by rows and inputs by tokens.
struct Segment {
  alignas(16) float weights[kSegment][kRows];
  alignas(16) float x[kSegment][kTokens];
};

/// Loads a segment of weights to shared memory; load() runs ahead of store().
template <class Values>
class FloatWeights {
 public:
  __device__ __forceinline__ void load(const Matrix& m, int32_t tile, int32_t k) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int32_t at = tile + tile_of(i);
      const int32_t input = k + input_of(i);
      v_[i] = {0, 0, 0, 0};
      if (at * kTileRows < m.rows && input < m.cols) {
        v_[i] = Values::at(m.tiles + at * m.tile_stride, input, quarter());
      }
    }
  }
  __device__ __forceinline__ void store(Segment& s) const {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kItems; ++i) {
      float* to = &s.weights[input_of(i)][tile_of(i) * kTileRows + quarter() * 4];
      *reinterpret_cast<float4*>(to) = v_[i];
    }
  }

 private:
  static constexpr int kItems = kTiles * kSegment * 4 / kThreads;
  static __device__ __forceinline__ int32_t item(int i) {
    return static_cast<int32_t>(threadIdx.x) + i * kThreads;
  }
  static __device__ __forceinline__ int32_t quarter() {
    return static_cast<int32_t>(threadIdx.x % 4);
  }
  static __device__ __forceinline__ int32_t input_of(int i) { return item(i) / 4 % kSegment; }
  static __device__ __forceinline__ int32_t tile_of(int i) { return item(i) / (4 * kSegment); }
  float4 v_[kItems];
};

/// Integer formats: half of the threads have four rows by four inputs each.
template <class Quads>
class CodeWeights {
 public:
  __device__ __forceinline__ void load(const Matrix& m, int32_t tile, int32_t k) {
    const int32_t at = tile + tile_of();
    codes_ = {0, 0, 0, 0};
    if (idle() || at * kTileRows >= m.rows || k + quad() * 4 >= m.cols) return;
    codes_ = Quads::at(m.tiles + at * m.tile_stride, k + quad() * 4, quarter());
  }
  __device__ __forceinline__ void store(Segment& s) const {
    if (idle()) return;
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      float* to = &s.weights[quad() * 4 + i][tile_of() * kTileRows + quarter() * 4];
      *reinterpret_cast<float4*>(to) = {code_value(codes_.x, i), code_value(codes_.y, i),
                                        code_value(codes_.z, i), code_value(codes_.w, i)};
    }
  }

 private:
  static __device__ __forceinline__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
  static __device__ __forceinline__ bool idle() { return thread() >= kTiles * kSegment; }
  static __device__ __forceinline__ int32_t quarter() { return thread() % 4; }
  static __device__ __forceinline__ int32_t quad() { return thread() / 4 % (kSegment / 4); }
  static __device__ __forceinline__ int32_t tile_of() { return thread() / kSegment; }
  uint4 codes_;
};

/// Eight inputs of one token per thread.
class Activations {
 public:
  __device__ __forceinline__ Activations(const ProductArgs& a, const RowChunk& chunk, int32_t cols)
      : cols_(cols) {
    const int32_t row = chunk.begin + token();
    if (row < chunk.end) x_ = a.in.x + input_row(a.rows, row) * a.in.ld_x;
  }
  __device__ __forceinline__ void load(int32_t k) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kInputs; ++i) {
      const int32_t input = k + first() + i;
      v_[i] = x_ != nullptr && input < cols_ ? x_[input] : 0.0f;
    }
  }
  __device__ __forceinline__ void store(Segment& s) const {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kInputs; ++i) s.x[first() + i][token()] = v_[i];
  }

 private:
  static constexpr int kInputs = kSegment * kTokens / kThreads;
  static __device__ __forceinline__ int32_t token() {
    return static_cast<int32_t>(threadIdx.x % kTokens);
  }
  static __device__ __forceinline__ int32_t first() {
    return static_cast<int32_t>(threadIdx.x / kTokens) * kInputs;
  }
  const float* x_ = nullptr;
  int32_t cols_;
  float v_[kInputs];
};

/// total += the segment's chains, for four rows and four tokens of the thread.
__device__ __forceinline__ void add_segment(const Segment& s, int32_t row, int32_t token, int32_t n,
                                            float (&total)[4][4]) {
  float sum[4][4] = {};
  const auto add = [&](int32_t k) {
    const float4 w4 = *reinterpret_cast<const float4*>(&s.weights[k][row]);
    const float4 x4 = *reinterpret_cast<const float4*>(&s.x[k][token]);
    const float w[4] = {w4.x, w4.y, w4.z, w4.w};
    const float x[4] = {x4.x, x4.y, x4.z, x4.w};
    MOE_CUDA_UNROLL
    for (int i = 0; i < 16; ++i) sum[i / 4][i % 4] = fused(w[i / 4], x[i % 4], sum[i / 4][i % 4]);
  };
  if (n == kSegment) {
    MOE_CUDA_UNROLL
    for (int k = 0; k < kSegment; ++k) add(k);
  } else {
    MOE_CUDA_NO_UNROLL
    for (int32_t k = 0; k < n; ++k) add(k);
  }
  MOE_CUDA_UNROLL
  for (int i = 0; i < 16; ++i) total[i / 4][i % 4] = total[i / 4][i % 4] + sum[i / 4][i % 4];
}

template <class Weights>
__global__ void __launch_bounds__(kThreads, 2) float_rows(const ProductArgs a) {
  wait_for_previous();
  MOE_CUDA_SHARED(Segment, segments, [2]);
  RowChunk chunk;
  if (!find_chunk<kTokens>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  int32_t y;
  const MatmulOut out = find_out(a, static_cast<int32_t>(blockIdx.y), &y);
  const Weight weight = find_weight(out, chunk.matrix);
  const Matrix& m = weight.matrix;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t row = thread % 16 * 4;    // in the block
  const int32_t token = thread / 16 * 4;  // in the block

  Weights weights;
  Activations x(a, chunk, m.cols);
  weights.load(m, y * kTiles, 0);
  x.load(0);
  float total[4][4] = {};
  MOE_CUDA_NO_UNROLL
  for (int32_t k = 0; k < m.cols; k += kSegment) {
    Segment& s = segments[k / kSegment % 2];
    weights.store(s);
    x.store(s);
    __syncthreads();
    if (k + kSegment < m.cols) {
      weights.load(m, y * kTiles, k + kSegment);
      x.load(k + kSegment);
    }
    add_segment(s, row, token, m.cols - k < kSegment ? m.cols - k : kSegment, total);
  }
  MOE_CUDA_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int32_t at = y * kRows + row + r;
    if (at >= m.rows) continue;
    const float sw = weight_scale(m, at, 0);
    const float bias = bias_of(weight, at);
    MOE_CUDA_UNROLL
    for (int t = 0; t < 4; ++t) {
      const int32_t to = chunk.begin + token + t;
      if (to < chunk.end) finish(out, total[r][t] * sw + bias, out.y + to * out.ld_y + at);
    }
  }
}

}  // namespace

int64_t product_floats_blocks(const ProductArgs& args) {
  int64_t y = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    y += (n_tiles(args.outs[i].weight.matrix) + kTiles - 1) / kTiles;
  }
  return n_chunks(args.rows, kTokens) * y;
}

cudaError_t product_floats(cudaStream_t stream, ProductArgs args) {
  int64_t y = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    args.first_y[i] = static_cast<int32_t>(y);
    y += (n_tiles(args.outs[i].weight.matrix) + kTiles - 1) / kTiles;
  }
  const auto start = [&](void (*kernel)(ProductArgs)) {
    const int64_t chunks = n_chunks(args.rows, kTokens);
    return launch(kernel,
                  {dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(y)), kThreads, 0},
                  stream, args);
  };
  switch (args.outs[0].weight.matrix.format) {
    case FormatId::kTernary2:
      return start(float_rows<CodeWeights<Ternary2Quads>>);
    case FormatId::kTernary3:
      return start(float_rows<CodeWeights<Ternary3Quads>>);
    case FormatId::kInt8:
      return start(float_rows<CodeWeights<Int8Quads>>);
    case FormatId::kF32:
      return start(float_rows<FloatWeights<F32Values>>);
    case FormatId::kBf16:
      return start(float_rows<FloatWeights<Bf16Values>>);
    case FormatId::kF16:
      return start(float_rows<FloatWeights<F16Values>>);
    default:  // no faster kernel
      return product_any(stream, args);
  }
}

}  // namespace moe::cuda
