// SPDX-License-Identifier: MIT
#pragma once
// Tiles of weights as operands of mma.m16n8k32, directly from their storage.
//
// A warp multiplies two tiles (32 rows) with 8 activation rows. Lane 4g + q reads four rows of tile
// g / 4 from the blocks given by q. Since rows and inputs of a product may be permuted, these
// registers are operands without shuffling: two of the lane's rows are rows g and g + 8 of one mma,
// the other two of a second one. Activations are 16 consecutive codes of row g of the eight, in the
// same order of inputs.

#include "kernels/cuda/matmul/decode.cuh"
#include "kernels/cuda/matmul/matmul.cuh"

namespace moe::cuda {

inline constexpr int kStep = 128;  // inputs per warp and step
inline constexpr int kWarps = 8;   // per block
inline constexpr int kThreads = kWarps * kWarp;
/// Words between tokens' 32 results in shared memory: avoids bank conflicts.
inline constexpr int kResultStride = 36;

/// The operand of one mma for each of the lane's two pairs of rows.
struct Fragment {
  uint32_t a[2][4];
};

/// A format: the blocks that lane q reads for unit u of step s (s * kStepBlocks + q * kLaneBlocks +
/// first(u), and kHigh further; in storage from lane_block(q) on, `offset` in bytes), and the rows:
/// those from byte (g % 4) * kLaneBytes of a block on.
///
/// ternary2: rows 4 (g % 4) .. + 3 in one load. A unit is a step; its words are decoded on use.
struct Ternary2Mma {
  struct Unit {
    uint4 low;
    uint4 high;
  };
  static constexpr int kUnits = 1;  // per step
  static constexpr int kCols = 16;  // per block
  static constexpr int kStepBlocks = 8;
  static constexpr int kLaneBlocks = 1;
  static constexpr int kLaneBytes = 16;
  static constexpr int kHigh = 4;
  static constexpr bool kUnsigned = true;
  static __device__ __forceinline__ int lane_block(int q) { return q * kLaneBlocks; }
  static __device__ __forceinline__ int first(int) { return 0; }
  static __device__ __forceinline__ int64_t offset(int32_t step, int) {
    return int64_t{step} * (kStepBlocks * kBlockBytes);
  }

  /// Loads from p, where `left` blocks follow; zeros beyond them.
  template <bool kOnce>
  static __device__ __forceinline__ Unit load(const uint8_t* p, int32_t left) {
    const uint8_t* high = p + kHigh * kBlockBytes;
    Unit u{{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (0 < left) u.low = kOnce ? load_once(p) : load_in_turn(p);
    if (kHigh < left) u.high = kOnce ? load_once(high) : load_in_turn(high);
    return u;
  }
};
/// int8: rows 2 (g % 4) and the next one, and those 8 further, with one load each, in the operand's
/// register order.
struct Int8Mma {
  using Unit = Fragment;
  static constexpr int kUnits = 4;
  static constexpr int kCols = 4;
  static constexpr int kStepBlocks = 32;
  static constexpr int kLaneBlocks = 4;
  static constexpr int kLaneBytes = 8;
  static constexpr int kHigh = 1;
  static constexpr bool kUnsigned = false;
  static __device__ __forceinline__ int lane_block(int q) { return q * kLaneBlocks; }
  static __device__ __forceinline__ int first(int unit) { return 2 * (unit % 2) + 16 * (unit / 2); }
  static __device__ __forceinline__ int64_t offset(int32_t step, int unit) {
    return int64_t{step} * (kStepBlocks * kBlockBytes) + first(unit) * kBlockBytes;
  }

  template <bool kOnce>
  static __device__ __forceinline__ Unit load(const uint8_t* p, int32_t left) {
    Unit u{};
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint8_t* from = p + i % 2 * kBlockBytes + i / 2 * (kBlockBytes / 2);
      if (i % 2 >= left) continue;
      const uint2 v = kOnce ? load_once_8(from) : load_in_turn_8(from);
      u.a[i / 2][i % 2 * 2] = v.x;
      u.a[i / 2][i % 2 * 2 + 1] = v.y;
    }
    return u;
  }
};

/// The lane's half of a pair of tiles: of one matrix, or of gate and up.
struct LaneTile {
  Weight weight;
  int32_t row;       // finished by this lane: lane % 16 of its tile
  bool valid;        // the row exists
  const uint8_t* p;  // the lane's rows in its first block
  int32_t n_blocks;  // remaining blocks; at most 0 if there is no such tile
};

template <bool kGated>
__device__ __forceinline__ int32_t n_pairs(const Matrix& m) {
  const int32_t tiles = (m.rows + kTileRows - 1) / kTileRows;
  return kGated ? tiles : (tiles + 1) / 2;
}

/// Offset of the lane's rows in its first block.
template <class Format>
__device__ __forceinline__ int32_t lane_offset(int32_t lane) {
  return Format::lane_block(lane % 4) * kBlockBytes + lane / 4 % 4 * Format::kLaneBytes;
}

template <class Format, bool kGated>
__device__ __forceinline__ LaneTile find_tile(const ProductArgs& a, const MatmulOut& out,
                                              int32_t matrix, int32_t pair) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const int32_t half = lane / 16;
  LaneTile t;
  t.weight = find_weight(out, matrix);
  Matrix& m = t.weight.matrix;
  if constexpr (kGated) {
    const Weight gate = find_weight(a.gate, matrix);
    m.tiles = half == 0 ? gate.matrix.tiles : m.tiles;
    m.tile_stride = half == 0 ? gate.matrix.tile_stride : m.tile_stride;
    m.scales = half == 0 ? gate.matrix.scales : m.scales;
    t.weight.bias = half == 0 ? gate.bias : t.weight.bias;
  }
  const int32_t tile = kGated ? pair : 2 * pair + half;
  t.row = tile * kTileRows + lane % kTileRows;
  t.valid = t.row < m.rows;
  const int32_t skipped = lane % 4 * Format::kLaneBlocks;
  t.p = m.tiles + tile * m.tile_stride + lane_offset<Format>(lane);
  const int32_t n_blocks = (m.cols + Format::kCols - 1) / Format::kCols;
  t.n_blocks = tile * kTileRows < m.rows ? n_blocks - skipped : 0;
  return t;
}

template <class Format, bool kOnce>
__device__ __forceinline__ typename Format::Unit load_unit(const LaneTile& t, int32_t step,
                                                           int unit) {
  const int32_t left = t.n_blocks - step * Format::kStepBlocks - Format::first(unit);
  return Format::template load<kOnce>(t.p + Format::offset(step, unit), left);
}

/// Inputs 32 j .. of a half step of ternary2 (j = 0, 1), from that half's words.
template <bool kSigned>
__device__ __forceinline__ Fragment ternary_fragment(const uint4& w, int j) {
  const auto codes = [j](uint32_t v, int field) {
    v >>= 4 * j + 2 * field;
    return kSigned ? signed_codes(v) : v & 0x03030303u;
  };
  return {{{codes(w.x, 0), codes(w.y, 0), codes(w.x, 1), codes(w.y, 1)},
           {codes(w.z, 0), codes(w.w, 0), codes(w.z, 1), codes(w.w, 1)}}};
}
/// Half step h (64 inputs) of a step whose units are `w`: two fragments.
template <class Format, bool kSigned>
__device__ __forceinline__ void half_step(const typename Format::Unit (&w)[Format::kUnits], int h,
                                          Fragment (&out)[2]) {
  if constexpr (Format::kUnits == 1) {
    out[0] = ternary_fragment<kSigned>(h == 0 ? w[0].low : w[0].high, 0);
    out[1] = ternary_fragment<kSigned>(h == 0 ? w[0].low : w[0].high, 1);
  } else {
    out[0] = w[2 * h];
    out[1] = w[2 * h + 1];
  }
}

/// sums (32 rows, 8 activation rows) += fragment; b0, b1: its activations.
template <bool kUnsigned>
__device__ __forceinline__ void multiply(int32_t (&sums)[2][4], const Fragment& f, uint32_t b0,
                                         uint32_t b1) {
  MOE_CUDA_UNROLL
  for (int m = 0; m < 2; ++m) {
    if constexpr (kUnsigned) {
      mma_u8s8(sums[m], f.a[m][0], f.a[m][1], f.a[m][2], f.a[m][3], b0, b1);
    } else {
      mma_s8s8(sums[m], f.a[m][0], f.a[m][1], f.a[m][2], f.a[m][3], b0, b1);
    }
  }
}
/// A half step: `x` are 16 codes of an activation row.
template <bool kUnsigned>
__device__ __forceinline__ void multiply_half(int32_t (&sums)[2][4], const Fragment (&f)[2],
                                              const uint4& x) {
  multiply<kUnsigned>(sums, f[0], x.x, x.y);
  multiply<kUnsigned>(sums, f[1], x.z, x.w);
}

/// Stores the lane's results of 8 tokens so that lane r of the warp can read row r: (8,
/// kResultStride).
template <class Format>
__device__ __forceinline__ void put_results(int32_t* results, const int32_t (&v)[2][4]) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  MOE_CUDA_UNROLL
  for (int t = 0; t < 2; ++t) {
    int32_t* token = results + (2 * (lane % 4) + t) * kResultStride + lane / 16 * kTileRows;
    if constexpr (Format::kLaneBytes == 16) {
      const int4 rows = {v[0][t], v[0][2 + t], v[1][t], v[1][2 + t]};
      *reinterpret_cast<int4*>(token + lane / 4 % 4 * 4) = rows;
    } else {
      MOE_CUDA_UNROLL
      for (int m = 0; m < 2; ++m) {
        const int2 rows = {v[m][t], v[m][2 + t]};
        *reinterpret_cast<int2*>(token + 8 * m + lane / 4 % 4 * 2) = rows;
      }
    }
  }
}

/// The row finished by a lane.
struct LaneRow {
  int32_t row;
  bool valid;
  float bias;
};

/// Finishes tokens `first`, `first + stride` .. below `count` (two at a time with a gate):
/// product(token) is the lane's row of x W^T. Output row of token 0: `row0`.
template <bool kGated, class Product>
__device__ __forceinline__ void write_tokens(const ProductArgs& a, const MatmulOut& out,
                                             const LaneRow& lane, int64_t row0, int32_t first,
                                             int32_t stride, int32_t count,
                                             const Product& product) {
  uint32_t positive = 0;
  float* y = out.y + row0 * out.ld_y + lane.row;
  if constexpr (kGated) {
    const auto half = static_cast<int32_t>(threadIdx.x % kWarp / 16);
    MOE_CUDA_NO_UNROLL
    for (int32_t token = 2 * first; token < count; token += 2 * stride) {
      const int32_t second = token + 1 < count ? token + 1 : token;
      const float v0 = product(token) + lane.bias;
      const float v1 = product(second) + lane.bias;
      // The gate's lanes finish the first token, those of `up` the second.
      const float other = __shfl_xor_sync(~0u, half == 0 ? v1 : v0, 16);
      const float gate = half == 0 ? v0 : other;
      const float up = half == 0 ? other : v1;
      if (lane.valid && token + half < count) {
        y[(token + half) * out.ld_y] = activate_gated(a.act, gate, up, &positive);
      }
    }
    add_positive(a.n_positive, positive);
  } else {
    MOE_CUDA_NO_UNROLL
    for (int32_t token = first; token < count; token += stride) {
      const float v = product(token) + lane.bias;
      if (!lane.valid) continue;
      if (a.activated) {
        y[token * out.ld_y] = activate_plain(a.act, v, &positive);
      } else {
        finish(out, v, y + token * out.ld_y);
      }
    }
    if (a.activated) add_positive(a.n_positive, positive);
  }
}

}  // namespace moe::cuda
