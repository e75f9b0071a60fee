#pragma once
// Tiles of ternary2 and int8 as operands of mma.m16n8k32, straight from how they are stored.
//
// A warp multiplies two tiles (32 rows) with 8 activation rows. Lane 4g + q reads 16 bytes at a
// time: rows 4 (g % 4) .. + 3 of tile g / 4, of the blocks that q says. As rows and inputs of a
// product may be taken in any order, these registers are the operand as they are: the first mma has
// words x and y of every lane as its rows g and g + 8, the second one z and w. Activations come as
// 16 consecutive codes of row g of the eight, in the same order of inputs. So lane 4g + q ends up
// with rows 4g .. 4g + 3 of the 32, for activation rows 2q and 2q + 1.

#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/matmul.cuh"

namespace moe::cuda {

inline constexpr int kStep = 128;  // inputs that a warp takes at once
inline constexpr int kWarps = 8;   // of a block
/// Words from one token's 32 results in shared memory to the next: no two lanes meet in a bank.
inline constexpr int kResultStride = 36;

/// What a lane loads at once: two blocks' words of its four rows.
struct Unit {
  uint4 low;
  uint4 high;
};

struct Ternary2Mma {
  static constexpr int kUnits = 1;  // of a step
  static constexpr int kCols = 16;  // of a block
  static constexpr int kHigh = 4;   // blocks from `low` to `high`
  static constexpr bool kUnsigned = true;
  static __device__ __forceinline__ int32_t low(int32_t step, int, int32_t q) {
    return 8 * step + q;
  }
};
struct Int8Mma {
  static constexpr int kUnits = 4;
  static constexpr int kCols = 4;
  static constexpr int kHigh = 1;
  static constexpr bool kUnsigned = false;
  static __device__ __forceinline__ int32_t low(int32_t step, int unit, int32_t q) {
    return 32 * step + 4 * q + 2 * (unit % 2) + 16 * (unit / 2);
  }
};

/// The lane's half of a pair of tiles: of one matrix, or of gate and up.
struct LaneTile {
  Weight weight;
  int32_t row;       // that this lane finishes: lane % 16 of its tile
  bool valid;        // there is such a row
  const uint8_t* p;  // to the lane's 16 bytes of the first block
  int32_t n_blocks;  // 0 where there is no such tile
};

template <bool kGated>
__device__ __forceinline__ int32_t n_pairs(const Matrix& m) {
  const int32_t tiles = (m.rows + kTileRows - 1) / kTileRows;
  return kGated ? tiles : (tiles + 1) / 2;
}

template <class Format, bool kGated>
__device__ __forceinline__ LaneTile find_tile(const ProductArgs& a, const MatmulOut& out,
                                              int32_t matrix, int32_t pair) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  const int32_t half = lane / 16;
  LaneTile t;
  t.weight = find_weight(kGated && half == 0 ? a.gate : out, matrix);
  const Matrix& m = t.weight.matrix;
  const int32_t tile = kGated ? pair : 2 * pair + half;
  t.row = tile * kTileRows + lane % kTileRows;
  t.valid = t.row < m.rows;
  t.p = m.tiles + tile * m.tile_stride + lane / 4 % 4 * 16;
  t.n_blocks = tile * kTileRows < m.rows ? (m.cols + Format::kCols - 1) / Format::kCols : 0;
  return t;
}

/// Zeros beyond the last block.
template <class Format, bool kOnce>
__device__ __forceinline__ Unit load_unit(const LaneTile& t, int32_t step, int unit) {
  const int32_t block = Format::low(step, unit, static_cast<int32_t>(threadIdx.x % 4));
  const uint8_t* p = t.p + int64_t{block} * kBlockBytes;
  const uint8_t* high = p + Format::kHigh * kBlockBytes;
  Unit u{{0, 0, 0, 0}, {0, 0, 0, 0}};
  if (block < t.n_blocks) u.low = kOnce ? load_once(p) : load16(p);
  if (block + Format::kHigh < t.n_blocks) u.high = kOnce ? load_once(high) : load16(high);
  return u;
}

/// The operand of one mma for each of the lane's two pairs of rows.
struct Fragment {
  uint32_t a[2][4];
};

/// Inputs 32 j .. of a half step of ternary2 (j = 0, 1), out of that half's words.
template <bool kSigned>
__device__ __forceinline__ Fragment ternary_fragment(const uint4& w, int j) {
  const auto codes = [j](uint32_t v, int field) {
    v >>= 4 * j + 2 * field;
    return kSigned ? signed_codes(v) : v & 0x03030303u;
  };
  return {{{codes(w.x, 0), codes(w.y, 0), codes(w.x, 1), codes(w.y, 1)},
           {codes(w.z, 0), codes(w.w, 0), codes(w.z, 1), codes(w.w, 1)}}};
}
__device__ __forceinline__ Fragment int8_fragment(const Unit& u) {
  return {{{u.low.x, u.low.y, u.high.x, u.high.y}, {u.low.z, u.low.w, u.high.z, u.high.w}}};
}

/// Half step h (64 inputs) of a step whose units are `w`: two fragments.
template <class Format, bool kSigned>
__device__ __forceinline__ void half_step(const Unit (&w)[Format::kUnits], int h,
                                          Fragment (&out)[2]) {
  if constexpr (Format::kUnits == 1) {
    out[0] = ternary_fragment<kSigned>(h == 0 ? w[0].low : w[0].high, 0);
    out[1] = ternary_fragment<kSigned>(h == 0 ? w[0].low : w[0].high, 1);
  } else {
    out[0] = int8_fragment(w[2 * h]);
    out[1] = int8_fragment(w[2 * h + 1]);
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

/// Puts the lane's results of 8 tokens where lane r of the warp finds row r: (8, kResultStride).
__device__ __forceinline__ void put_results(int32_t* results, const int32_t (&v)[2][4]) {
  const auto lane = static_cast<int32_t>(threadIdx.x % kWarp);
  MOE_CUDA_UNROLL
  for (int t = 0; t < 2; ++t) {
    const int4 rows = {v[0][t], v[0][2 + t], v[1][t], v[1][2 + t]};
    int32_t* at = results + (2 * (lane % 4) + t) * kResultStride + 4 * (lane / 4);
    *reinterpret_cast<int4*>(at) = rows;
  }
}

/// Finishes tokens `first`, `first + stride` .. below `count` (two at a time with a gate):
/// product(token) is the lane's row of x W^T for it. Output row of token 0: `row0`.
template <bool kGated, class Product>
__device__ __forceinline__ void write_tokens(const ProductArgs& a, const MatmulOut& out,
                                             const LaneTile& t, float bias, int64_t row0,
                                             int32_t first, int32_t stride, int32_t count,
                                             const Product& product) {
  const bool has_bias = t.weight.bias != nullptr;
  uint32_t positive = 0;
  float* y = out.y + row0 * out.ld_y + t.row;
  if constexpr (kGated) {
    const auto half = static_cast<int32_t>(threadIdx.x % kWarp / 16);
    for (int32_t token = 2 * first; token < count; token += 2 * stride) {
      const int32_t second = token + 1 < count ? token + 1 : token;
      float v[2] = {product(token), product(second)};
      if (has_bias) v[0] = v[0] + bias;
      if (has_bias) v[1] = v[1] + bias;
      // The gate's lanes finish the first token, those of `up` the second.
      const float other = __shfl_xor_sync(~0u, half == 0 ? v[1] : v[0], 16);
      const float gate = half == 0 ? v[0] : other;
      const float up = half == 0 ? other : v[1];
      if (t.valid && token + half < count) {
        y[(token + half) * out.ld_y] = activate_gated(a.act, gate, up, &positive);
      }
    }
    add_positive(a.n_positive, positive);
  } else {
    for (int32_t token = first; token < count; token += stride) {
      float v = product(token);
      if (!t.valid) continue;
      if (a.activated) {
        if (has_bias) v = v + bias;
        y[token * out.ld_y] = activate_plain(a.act, v, &positive);
      } else {
        finish(out, bias, has_bias, v, y + token * out.ld_y);
      }
    }
    if (a.activated) add_positive(a.n_positive, positive);
  }
}

__device__ __forceinline__ Codes find_codes(const ProductArgs& a, ActPrecision act) {
  return act == ActPrecision::kA8 ? a.in.a8 : a.in.a8_block;
}

}  // namespace moe::cuda
