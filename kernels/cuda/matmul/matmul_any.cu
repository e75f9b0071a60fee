// SPDX-License-Identifier: MIT
// Matrix products for every format and every kind of scale and activation, for few rows. A thread
// sums a segment, 32 consecutive inputs (16 if these share a scale), of four rows of a tile; the
// sums of these segments are then added in ascending order. Integers are exact; for floats this
// order is the definition: a chain of fused multiply-adds within a segment, plain additions of the
// segments.

#include "kernels/cuda/matmul/decode.cuh"
#include "kernels/cuda/matmul/element.h"
#include "kernels/cuda/matmul/matmul.cuh"

namespace moe::cuda {
namespace {

constexpr int kSegment = 32;  // at most
constexpr int kThreads = 256;
constexpr int kRound = kThreads / 4;  // segments that a block sums at once

/// How many steps of four inputs are unrolled in the loop over a segment: all eight, but those of a
/// trellis would need too many registers.
template <class Quads>
[[maybe_unused]] inline constexpr int kQuadsAtOnce = kSegment / 4;
template <class Layout>
[[maybe_unused]] inline constexpr int kQuadsAtOnce<TrellisQuads<Layout>> = 4;

/// Sums of one segment: [token][row of the quarter], as bits.
template <int kT>
using Sums = uint32_t[kT][4];

template <class Quads, int kT>
__device__ __forceinline__ void integer_segment(const uint8_t* tile, int32_t end, int32_t k,
                                                int32_t quarter, const int8_t* const (&x)[kT],
                                                Sums<kT>& out) {
  int32_t sum[kT][4] = {};
  MOE_CUDA_UNROLL_BY(kQuadsAtOnce<Quads>)
  for (int i = 0; i < kSegment; i += 4) {
    if (k + i >= end) continue;
    const uint4 w = Quads::at(tile, k + i, quarter);
    MOE_CUDA_UNROLL
    for (int t = 0; t < kT; ++t) {
      const uint32_t codes = *reinterpret_cast<const uint32_t*>(x[t] + k + i);
      sum[t][0] = dp4a_s8(w.x, codes, sum[t][0]);
      sum[t][1] = dp4a_s8(w.y, codes, sum[t][1]);
      sum[t][2] = dp4a_s8(w.z, codes, sum[t][2]);
      sum[t][3] = dp4a_s8(w.w, codes, sum[t][3]);
    }
  }
  MOE_CUDA_UNROLL
  for (int i = 0; i < 4 * kT; ++i) out[i / 4][i % 4] = static_cast<uint32_t>(sum[i / 4][i % 4]);
}

template <int kT>
__device__ __forceinline__ void as_bits(const float (&sum)[kT][4], Sums<kT>& out) {
  MOE_CUDA_UNROLL
  for (int i = 0; i < 4 * kT; ++i) out[i / 4][i % 4] = __float_as_uint(sum[i / 4][i % 4]);
}

template <class Quads, int kT>
__device__ __forceinline__ void decoded_segment(const uint8_t* tile, int32_t end, int32_t k,
                                                int32_t quarter, const float* const (&x)[kT],
                                                Sums<kT>& out) {
  float sum[kT][4] = {};
  MOE_CUDA_UNROLL_BY(kQuadsAtOnce<Quads>)
  for (int i = 0; i < kSegment; i += 4) {
    if (k + i >= end) continue;
    const uint4 w = Quads::at(tile, k + i, quarter);
    MOE_CUDA_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (k + i + j >= end) continue;
      MOE_CUDA_UNROLL
      for (int t = 0; t < kT; ++t) {
        const float v = x[t][k + i + j];
        sum[t][0] = fused(code_value(w.x, j), v, sum[t][0]);
        sum[t][1] = fused(code_value(w.y, j), v, sum[t][1]);
        sum[t][2] = fused(code_value(w.z, j), v, sum[t][2]);
        sum[t][3] = fused(code_value(w.w, j), v, sum[t][3]);
      }
    }
  }
  as_bits<kT>(sum, out);
}

template <class Values, int kT>
__device__ __forceinline__ void float_segment(const uint8_t* tile, int32_t end, int32_t k,
                                              int32_t quarter, const float* const (&x)[kT],
                                              Sums<kT>& out) {
  float sum[kT][4] = {};
  MOE_CUDA_UNROLL
  for (int i = 0; i < kSegment; ++i) {
    if (k + i >= end) continue;
    const float4 w = Values::at(tile, k + i, quarter);
    MOE_CUDA_UNROLL
    for (int t = 0; t < kT; ++t) {
      const float v = x[t][k + i];
      sum[t][0] = fused(w.x, v, sum[t][0]);
      sum[t][1] = fused(w.y, v, sum[t][1]);
      sum[t][2] = fused(w.z, v, sum[t][2]);
      sum[t][3] = fused(w.w, v, sum[t][3]);
    }
  }
  as_bits<kT>(sum, out);
}

__device__ __forceinline__ uint32_t sum_bits(float sum) { return __float_as_uint(sum); }
__device__ __forceinline__ uint32_t sum_bits(int32_t sum) { return static_cast<uint32_t>(sum); }
__device__ __forceinline__ float add_product(float w, float x, float sum) {
  return fused(w, x, sum);
}
__device__ __forceinline__ int32_t add_product(float w, int8_t x, int32_t sum) {
  return sum + static_cast<int32_t>(w) * x;
}

/// Formats that AnyKernel does not decode by words.
MOE_INLINE constexpr bool read_by_element(FormatId format) {
  switch (format) {
    case FormatId::kTernary2:
    case FormatId::kTernary3:
    case FormatId::kInt8:
    case FormatId::kInt6K:
    case FormatId::kInt2K:
    case FormatId::kInt3K:
    case FormatId::kTcq2:
    case FormatId::kTcq3:
    case FormatId::kF32:
    case FormatId::kBf16:
    case FormatId::kF16:
      return false;
    default:
      return true;
  }
}

/// One of these formats, using its definition: slow.
template <class Sum, int kT, class X>
__device__ void element_segment(const Matrix& m, int32_t tile, int32_t end, int32_t k,
                                int32_t quarter, const X* const (&x)[kT], Sums<kT>& out) {
  MOE_CUDA_NO_UNROLL
  for (int32_t i = 0; i < 4; ++i) {
    Sum sum[kT] = {};
    MOE_CUDA_NO_UNROLL
    for (int32_t col = k; col < end; ++col) {
      const float w = element_if<read_by_element>(m, tile * kTileRows + quarter * 4 + i, col);
      MOE_CUDA_UNROLL
      for (int t = 0; t < kT; ++t) sum[t] = add_product(w, x[t][col], sum[t]);
    }
    // A run-time index would put the sums in local memory.
    MOE_CUDA_UNROLL
    for (int j = 0; j < 4 * kT; ++j) {
      if (j % 4 == i) out[j / 4][j % 4] = sum_bits(sum[j / 4]);
    }
  }
}

/// One matrix on the input rows of a block.
template <int kT>
struct Problem {
  const MatmulInput& in;
  const Matrix& m;
  int32_t tile;
  const int32_t (&rows)[kT];  // input rows

  __device__ __forceinline__ bool floats() const { return m.act == ActPrecision::kF32; }
  __device__ __forceinline__ Codes codes() const { return codes_of(in, m.act); }
  __device__ __forceinline__ bool grouped() const { return m.scale_kind == ScaleKind::kGroup; }
  /// Inputs summed before scaling.
  __device__ __forceinline__ int32_t block() const {
    if (grouped()) return m.group;
    return inputs_per_scale(m.act, m.cols);
  }
  /// Inputs of a segment, and the end of the one from k on.
  __device__ __forceinline__ int32_t segment() const {
    return grouped() && m.group < kSegment ? m.group : kSegment;
  }
  __device__ __forceinline__ int32_t end(int32_t k) const {
    const int32_t length = segment();
    return m.cols - k < length ? m.cols : k + length;
  }
  __device__ __forceinline__ void rows_of_floats(const float* (&x)[kT]) const {
    MOE_CUDA_UNROLL
    for (int t = 0; t < kT; ++t) x[t] = in.x + rows[t] * in.ld_x;
  }
};

/// Float weights of one format.
template <class Values>
struct FloatKernel {
  template <int kT>
  static __device__ __forceinline__ void segment(const Problem<kT>& p, int32_t k, int32_t quarter,
                                                 Sums<kT>& out) {
    const float* x[kT];
    p.rows_of_floats(x);
    float_segment<Values, kT>(p.m.tiles + p.tile * p.m.tile_stride, p.end(k), k, quarter, x, out);
  }
};

/// Dispatches on the matrix's format.
struct AnyKernel {
  template <int kT>
  static __device__ __forceinline__ void segment(const Problem<kT>& p, int32_t k, int32_t quarter,
                                                 Sums<kT>& out) {
    const Matrix& m = p.m;
    const uint8_t* w = m.tiles + p.tile * m.tile_stride;
    const int32_t end = p.end(k);
    if (p.floats()) {
      const float* x[kT];
      p.rows_of_floats(x);
      switch (m.format) {
        case FormatId::kTernary2:
          return decoded_segment<Ternary2Quads, kT>(w, end, k, quarter, x, out);
        case FormatId::kTernary3:
          return decoded_segment<Ternary3Quads, kT>(w, end, k, quarter, x, out);
        case FormatId::kInt8:
          return decoded_segment<Int8Quads, kT>(w, end, k, quarter, x, out);
        case FormatId::kInt6K:
          return decoded_segment<Int6KQuads, kT>(w, end, k, quarter, x, out);
        case FormatId::kInt2K:
          return decoded_segment<FewBitQuads<Int2KLayout>, kT>(w, end, k, quarter, x, out);
        case FormatId::kInt3K:
          return decoded_segment<FewBitQuads<Int3KLayout>, kT>(w, end, k, quarter, x, out);
        case FormatId::kTcq2:
          return decoded_segment<TrellisQuads<Tcq2Layout>, kT>(w, end, k, quarter, x, out);
        case FormatId::kTcq3:
          return decoded_segment<TrellisQuads<Tcq3Layout>, kT>(w, end, k, quarter, x, out);
        case FormatId::kF32:
          return float_segment<F32Values, kT>(w, end, k, quarter, x, out);
        case FormatId::kBf16:
          return float_segment<Bf16Values, kT>(w, end, k, quarter, x, out);
        case FormatId::kF16:
          return float_segment<F16Values, kT>(w, end, k, quarter, x, out);
        default:
          return element_segment<float, kT>(m, p.tile, end, k, quarter, x, out);
      }
    }
    const Codes c = p.codes();
    const int8_t* x[kT];
    MOE_CUDA_UNROLL
    for (int t = 0; t < kT; ++t) x[t] = c.codes + p.rows[t] * c.ld;
    switch (m.format) {
      case FormatId::kTernary2:
        return integer_segment<Ternary2Quads, kT>(w, end, k, quarter, x, out);
      case FormatId::kTernary3:
        return integer_segment<Ternary3Quads, kT>(w, end, k, quarter, x, out);
      case FormatId::kInt8:
        return integer_segment<Int8Quads, kT>(w, end, k, quarter, x, out);
      case FormatId::kInt6K:
        return integer_segment<Int6KQuads, kT>(w, end, k, quarter, x, out);
      case FormatId::kInt2K:
        return integer_segment<FewBitQuads<Int2KLayout>, kT>(w, end, k, quarter, x, out);
      case FormatId::kInt3K:
        return integer_segment<FewBitQuads<Int3KLayout>, kT>(w, end, k, quarter, x, out);
      case FormatId::kTcq2:
        return integer_segment<TrellisQuads<Tcq2Layout>, kT>(w, end, k, quarter, x, out);
      case FormatId::kTcq3:
        return integer_segment<TrellisQuads<Tcq3Layout>, kT>(w, end, k, quarter, x, out);
      default:
        return element_segment<int32_t, kT>(m, p.tile, end, k, quarter, x, out);
    }
  }
};

/// The chain of one output over the segments, with the scales in the CPU's order.
class Chain {
 public:
  template <int kT>
  __device__ __forceinline__ Chain(const Problem<kT>& p, int32_t row, int32_t input)
      : m_(p.m),
        row_(row),
        floats_(p.floats()),
        length_(p.segment()),
        inside_(p.grouped() || (!floats_ && p.m.act == ActPrecision::kA8)),
        grouped_(p.grouped()),
        per_block_(grouped_ || p.m.act == ActPrecision::kA8Block ? p.block() / length_ : 0),
        per_scale_(inputs_per_scale(p.m.act, p.m.cols)) {
    in_tile_ = has_group_scales(p.m);
    x_ = p.in.x + int64_t{input} * p.in.ld_x;
    if (floats_) return;
    const Codes c = p.codes();
    sx_ = c.scales + int64_t{input} * n_act_scales(p.m);
    codes_ = c.codes + int64_t{input} * c.ld;
  }

  /// True if the sums of segments are only added.
  __device__ __forceinline__ bool plain() const { return floats_ && per_block_ == 0; }
  __device__ __forceinline__ void add_plain(uint32_t bits) { sum_ = sum_ + __uint_as_float(bits); }

  __device__ __forceinline__ void add(uint32_t bits, int32_t segment) {
    if (floats_) {
      sum_ = sum_ + __uint_as_float(bits);
    } else {
      exact_ += static_cast<int32_t>(bits);
    }
    if (per_block_ != 0 && (segment + 1) % per_block_ == 0) close(segment);
  }

  __device__ __forceinline__ float result(int32_t last_segment) {
    if (floats_ && !grouped_) return sum_ * weight_scale(m_, row_, 0);
    if (per_block_ == 0 || (last_segment + 1) % per_block_ != 0) close(last_segment);
    return inside_ ? total_ : total_ * weight_scale(m_, row_, 0);
  }

 private:
  // Ends a block of inputs with a common scale.
  __device__ __forceinline__ void close(int32_t segment) {
    const int32_t k = segment * length_;
    if (in_tile_) return close_group(k);
    const float sw = inside_ ? weight_scale(m_, row_, grouped_ ? k / m_.group : 0) : 1.0f;
    if (floats_) {
      if (grouped_) {
        total_ = fused(sum_, sw, total_);
        sum_ = 0;
      }
      return;
    }
    const float sx = sx_[k / per_scale_];
    total_ = fused(static_cast<float>(exact_), sx * sw, total_);
    exact_ = 0;
  }

  // The same if the scale is in the tile: a group is then a segment.
  __device__ void close_group(int32_t k) {
    const GroupScales s = group_scales_of(m_, row_, k / m_.group);
    const int32_t end = k + m_.group < m_.cols ? k + m_.group : m_.cols;
    if (floats_) {
      total_ = fused(sum_, s.scale, total_);
      float inputs = 0;
      for (int32_t i = k; i < end && s.minimums; ++i) inputs = inputs + x_[i];
      if (s.minimums) total_ = fused(inputs, s.minimum, total_);
      sum_ = 0;
      return;
    }
    const float sx = sx_[k / per_scale_];
    total_ = fused(static_cast<float>(exact_), sx * s.scale, total_);
    int32_t inputs = 0;
    for (int32_t i = k; i < end && s.minimums; ++i) inputs += codes_[i];
    if (s.minimums) total_ = fused(static_cast<float>(inputs) * sx, s.minimum, total_);
    exact_ = 0;
  }

  static_assert(kSegment == kTileGroup);  // or half of one

  const Matrix& m_;
  int32_t row_;
  bool floats_;
  int32_t length_;  // of a segment
  bool inside_;
  bool grouped_;
  int32_t per_block_;
  int32_t per_scale_;  // inputs
  bool in_tile_;
  const float* x_;
  const float* sx_ = nullptr;
  const int8_t* codes_ = nullptr;
  int32_t exact_ = 0;
  float sum_ = 0;
  float total_ = 0;
};

/// x W^T for output (row threadIdx.x % 16 of the tile, token threadIdx.x / 16); other threads get
/// 0.
template <class Kernel, int kT>
__device__ __forceinline__ float product(const Problem<kT>& p,
                                         uint32_t (&partial)[kRound][kT][kTileRows]) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t length = p.segment();
  const int32_t n_segments = (p.m.cols + length - 1) / length;
  const bool mine = thread < kTileRows * kT;
  const int32_t row = thread % kTileRows;
  const int32_t token = mine ? thread / kTileRows : 0;
  int32_t input = p.rows[0];
  MOE_CUDA_UNROLL
  for (int t = 1; t < kT; ++t) input = token == t ? p.rows[t] : input;
  Chain chain(p, p.tile * kTileRows + row, input);
  for (int32_t first = 0; first < n_segments; first += kRound) {
    const int32_t segment = first + thread / 4;
    if (segment < n_segments) {
      Sums<kT> sums;
      Kernel::segment(p, segment * length, thread % 4, sums);
      MOE_CUDA_UNROLL
      for (int t = 0; t < kT; ++t) {
        MOE_CUDA_UNROLL
        for (int i = 0; i < 4; ++i) partial[thread / 4][t][thread % 4 * 4 + i] = sums[t][i];
      }
    }
    __syncthreads();
    if (mine) {
      const int32_t n = n_segments - first < kRound ? n_segments - first : kRound;
      if (chain.plain()) {
        MOE_UNROLL_8
        for (int32_t s = 0; s < n; ++s) chain.add_plain(partial[s][token][row]);
      } else {
        for (int32_t s = 0; s < n; ++s) chain.add(partial[s][token][row], first + s);
      }
    }
    __syncthreads();
  }
  return mine ? chain.result(n_segments - 1) : 0.0f;
}

template <class Kernel, int kT>
__global__ void __launch_bounds__(kThreads, 2) any_rows(const ProductArgs a) {
  if (weights_are_known(a.rows)) {
    int32_t known;
    const MatmulOut of_block = find_out(a, a.y + static_cast<int32_t>(blockIdx.y), &known);
    prefetch_tile(of_block.weight.matrix, known);
  }
  wait_for_previous();
  MOE_CUDA_SHARED(uint32_t, partial, [kRound][kT][kTileRows]);
  RowChunk chunk;
  if (!find_chunk<kT>(a.rows, static_cast<int32_t>(blockIdx.x), &chunk)) return;
  int32_t tile;
  const MatmulOut out = find_out(a, a.y + static_cast<int32_t>(blockIdx.y), &tile);
  int32_t rows[kT];
  MOE_CUDA_UNROLL
  for (int t = 0; t < kT; ++t) {
    const int32_t row = chunk.begin + t;
    rows[t] = input_row(a.rows, row < chunk.end ? row : chunk.begin);
  }

  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t row = tile * kTileRows + thread % kTileRows;
  const int32_t token = chunk.begin + thread / kTileRows;
  const bool mine = thread < kTileRows * kT && token < chunk.end && row < out.weight.matrix.rows;
  float gate = 0;
  float v = 0;
  MOE_CUDA_NO_UNROLL
  for (int pass = a.gated ? 0 : 1; pass < 2; ++pass) {  // first the gate, then the other
    const Weight w = pass == 0 ? find_weight(a.gate, chunk.matrix) : find_weight(out, chunk.matrix);
    gate = v;
    v = product<Kernel, kT>({a.in, w.matrix, tile, rows}, partial);
    if (mine) v = v + bias_of(w, row);
  }
  float* y = out.y + token * out.ld_y + row;
  if (!a.activated) {
    if (mine) finish(out, v, y);
    return;
  }
  uint32_t positive = 0;
  if (a.gated) {
    if (mine) *y = activate_gated(a.act, gate, v, &positive);
  } else {
    if (mine) *y = activate_plain(a.act, v, &positive);
  }
  add_positive(a.n_positive, positive);
}

template <class Kernel, int kT>
cudaError_t start_rows(cudaStream_t stream, ProductArgs args, int32_t blocks_y) {
  const auto chunks = static_cast<unsigned>(n_chunks(args.rows, kT));
  for (args.y = 0; args.y < blocks_y; args.y += kMostGridY) {
    const int32_t rest = blocks_y - args.y;
    const dim3 blocks(chunks, static_cast<unsigned>(rest < kMostGridY ? rest : kMostGridY));
    const cudaError_t error = launch(any_rows<Kernel, kT>, Grid{blocks, kThreads, 0}, stream, args);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

template <class Kernel>
cudaError_t start(cudaStream_t stream, const ProductArgs& args, int32_t blocks_y) {
  const int64_t groups = args.rows.group != nullptr ? args.rows.max_groups : 1;
  if (args.rows.rows.n <= groups) return start_rows<Kernel, 1>(stream, args, blocks_y);
  return start_rows<Kernel, 4>(stream, args, blocks_y);
}

}  // namespace

cudaError_t product_any(cudaStream_t stream, ProductArgs args) {
  int32_t y = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    args.first_y[i] = y;
    y += n_tiles(args.outs[i].weight.matrix);
  }
  if (args.gated) return start<AnyKernel>(stream, args, y);
  switch (args.outs[0].weight.matrix.format) {
    case FormatId::kF32:
      return start<FloatKernel<F32Values>>(stream, args, y);
    case FormatId::kBf16:
      return start<FloatKernel<Bf16Values>>(stream, args, y);
    case FormatId::kF16:
      return start<FloatKernel<F16Values>>(stream, args, y);
    default:
      return start<AnyKernel>(stream, args, y);
  }
}

}  // namespace moe::cuda
