// SPDX-License-Identifier: MIT
#pragma once
// Generic weight decoding per thread: four rows by four inputs of a tile. `quarter` selects rows 4
// * quarter .. + 3.

#include "kernels/cuda/platform.h"
#include "kernels/math.h"
#include "quant/few_bits_layout.h"
#include "quant/four_bit_layout.h"
#include "quant/int6_k_layout.h"
#include "quant/ternary3_layout.h"
#include "quant/trellis_layout.h"

namespace moe::cuda {

__device__ __forceinline__ uint4 load16(const void* p) { return *static_cast<const uint4*>(p); }

/// Four 2-bit fields, one per byte at its low end (code = weight + 1), as signed bytes.
__device__ __forceinline__ uint32_t signed_codes(uint32_t fields) {
  return (((fields & 0x03030303u) | 0x80808080u) - 0x01010101u) ^ 0x80808080u;
}

/// Integer formats: word i of the result holds inputs k .. k + 3 (k a multiple of 4) of row 4 *
/// quarter + i as signed bytes.
struct Ternary2Quads {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const uint4 w = load16(tile + int64_t{k / 16} * kBlockBytes + quarter * 16);
    const int32_t shift = k % 16 / 4 * 2;
    return {signed_codes(w.x >> shift), signed_codes(w.y >> shift), signed_codes(w.z >> shift),
            signed_codes(w.w >> shift)};
  }
};

struct Ternary3Quads {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const uint4 w = load16(tile + Ternary3Layout::block_of(k) * kBlockBytes + quarter * 16);
    const int32_t digit = Ternary3Layout::digit_of(k);
    return {digits(w.x, digit), digits(w.y, digit), digits(w.z, digit), digits(w.w, digit)};
  }

 private:
  static __device__ __forceinline__ uint32_t digits(uint32_t bytes, int32_t digit) {
    // 65536 / 3^digit, rounded up: exact quotients of the bytes up to 242.
    const uint32_t inverse = digit == 0   ? 65536
                             : digit == 1 ? 21846
                             : digit == 2 ? 7282
                             : digit == 3 ? 2428
                                          : 810;
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t quotient = ((bytes >> (8 * i) & 255) * inverse) >> 16;
      codes |= (quotient - (quotient * 171 >> 9) * 3) << (8 * i);
    }
    return signed_codes(codes);
  }
};

struct Int8Quads {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    return load16(tile + int64_t{k / 4} * kBlockBytes + quarter * 16);
  }
};

/// Eight six-bit codes as signed bytes: x with the lower halves of the bytes of `low`, y with the
/// upper ones. `high`: the upper bits of x in bits 0 and 1 of each byte, those of y in 2 and 3.
__device__ __forceinline__ uint2 six_bit_values(uint32_t low, uint32_t high) {
  // 63 + 96 needs no ninth bit.
  const auto value = [](uint32_t four, uint32_t two) {
    const uint32_t code = (four & 0x0f0f0f0fu) | (two & 0x30303030u);
    return (code + 0x01010101u * (128 - Int6KLayout::kOffset)) ^ 0x80808080u;
  };
  return {value(low, high << 4), value(low >> 4, high << 2)};
}

/// Codes of two or three bits.
template <class Layout>
struct FewBitQuads {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const int32_t group = k / Layout::kGroupInputs;
    const int32_t quad = k % Layout::kGroupInputs / 4;
    const uint8_t* codes = tile + Layout::codes_at(group) + quarter * 16;
    const uint4 low = load16(codes);
    uint4 third = {};
    if constexpr (Layout::kThird) third = load16(codes + Layout::third_after(group));
    const int bit = group % 2 * 4 + quad;
    return {values(low.x, third.x, quad, bit), values(low.y, third.y, quad, bit),
            values(low.z, third.z, quad, bit), values(low.w, third.w, quad, bit)};
  }

 private:
  /// Four codes of a row as signed bytes.
  static __device__ __forceinline__ uint32_t values(uint32_t low, uint32_t third, int quad,
                                                    int bit) {
    const uint32_t code = (low >> (quad * 2) & 0x03030303u) | (third >> bit & 0x01010101u) << 2;
    // No byte borrows from the next: each is at least 128 - kOffset, then its upper bit flips.
    return (code + 0x01010101u * (128 - Layout::kOffset)) ^ 0x80808080u;
  }
};

struct Int6KQuads {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const uint8_t* group = tile + Int6KLayout::codes_at(k / Int6KLayout::kGroupInputs);
    const int32_t quad = k % Int6KLayout::kGroupInputs / 4;
    const uint4 low = load16(group + quad / 2 * kBlockBytes + quarter * 16);
    const uint4 high = load16(group + Int6KLayout::kHigh + quarter * 16);
    return {word(low.x, high.x, quad), word(low.y, high.y, quad), word(low.z, high.z, quad),
            word(low.w, high.w, quad)};
  }

 private:
  static __device__ __forceinline__ uint32_t word(uint32_t low, uint32_t high, int32_t quad) {
    const uint2 both = six_bit_values(low, high >> (quad / 2 * 4));
    return quad % 2 == 0 ? both.x : both.y;
  }
};

/// The first of 16 consecutive values of a four-bit format; 128 if they are not consecutive.
template <class Layout>
constexpr int first_value() {
  const auto value = [](int code) {
    return static_cast<int8_t>((code < 8 ? Layout::kLowValues : Layout::kHighValues) >>
                               (code % 8 * 8));
  };
  for (int code = 1; code < 16; ++code) {
    if (value(code) != value(0) + code) return 128;
  }
  return value(0);
}

template <class Layout>
inline constexpr int kFirstValue = first_value<Layout>();

/// The values of eight codes of at most four bits in Layout's tables, as signed bytes: x those of
/// the lower halves of the bytes, y those of the upper halves.
template <class Layout>
__device__ __forceinline__ uint2 table_values(uint32_t codes) {
  // A byte permutation looks up four codes in eight values; bit 3 of each code selects between
  // the results from both halves of the table. If these are the same, no code has that bit.
  constexpr bool kHalves = Layout::kLowValues != Layout::kHighValues;
  constexpr auto kWord = [](uint64_t values, int i) {
    return static_cast<uint32_t>(values >> (32 * i));
  };
  const uint32_t places = kHalves ? codes & 0x77777777u : codes;
  uint32_t v[2];
  MOE_CUDA_UNROLL
  for (int i = 0; i < 2; ++i) {
    v[i] =
        __byte_perm(kWord(Layout::kLowValues, 0), kWord(Layout::kLowValues, 1), places >> (16 * i));
    if constexpr (kHalves) {
      const uint32_t high = __byte_perm(kWord(Layout::kHighValues, 0),
                                        kWord(Layout::kHighValues, 1), places >> (16 * i));
      const uint32_t halves = 0x32103210u | (codes & 0x88888888u) >> 1;
      v[i] = __byte_perm(v[i], high, halves >> (16 * i));
    }
  }
  return {__byte_perm(v[0], v[1], 0x6420), __byte_perm(v[0], v[1], 0x7531)};
}

/// The values of eight four-bit codes as signed bytes: x those of the lower halves of the bytes, y
/// those of the upper halves.
template <class Layout>
__device__ __forceinline__ uint2 four_bit_values(uint32_t codes) {
  constexpr int kFirst = kFirstValue<Layout>;
  if constexpr (kFirst == 0) {
    return {codes & 0x0f0f0f0fu, codes >> 4 & 0x0f0f0f0fu};
  } else if constexpr (kFirst < 0) {
    constexpr uint32_t kShift = 0x01010101u * static_cast<uint32_t>(-kFirst);
    const auto value = [](uint32_t v) {
      return (((v & 0x0f0f0f0fu) | 0x80808080u) - kShift) ^ 0x80808080u;
    };
    return {value(codes), value(codes >> 4)};
  } else {
    return table_values<Layout>(codes);
  }
}

/// Trellis-coded weights, whose levels are four-bit codes at most.
template <class Layout>
struct TrellisQuads {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const uint8_t* group = tile + Layout::codes_at(k / Layout::kGroupInputs);
    const int32_t e = k % Layout::kGroupInputs / 8;
    const int32_t half = k % 8 / 4 * 4;
    const uint2 subset = subsets(group, quarter, e + half);
    // A block of single bits, or two of pairs of bits.
    constexpr bool kPairs = Layout::kBitsOfWeight == 3;
    constexpr uint32_t kMask = kPairs ? 3 : 1;
    const uint8_t* blocks = group + kBlockBytes + quarter * 16;
    const uint4 u = load16(kPairs ? blocks + e % 2 * kBlockBytes : blocks);
    const int32_t place = (kPairs ? e / 2 * 2 : e) + half;
    const uint2 a = table_values<Layout>(subset.x | two_rows<kMask>(u.x, u.y, place) << 2);
    const uint2 b = table_values<Layout>(subset.y | two_rows<kMask>(u.z, u.w, place) << 2);
    return {a.x, a.y, b.x, b.y};
  }

 private:
  /// The lower two bits of the levels: x those of the quarter's first two rows, y of the others.
  static __device__ __forceinline__ uint2 subsets(const uint8_t* branches, int32_t quarter,
                                                  int32_t place) {
    const uint4 w = load16(branches + quarter * 16);
    // The two rows above are the end of the quarter before; the last quarter is before the first.
    const int32_t above = (quarter + 3) % 4 * 16 + 8;
    const uint2 before = *reinterpret_cast<const uint2*>(branches + above);
    // Each has two rows of the quarter, the first of which is row -2, -1, 0, 1 or 2.
    const uint32_t a = two_rows<1>(before.x, before.y, place);
    const uint32_t b = two_rows<1>(before.y, w.x, place);
    const uint32_t c = two_rows<1>(w.x, w.y, place);
    const uint32_t d = two_rows<1>(w.y, w.z, place);
    const uint32_t e = two_rows<1>(w.z, w.w, place);
    return {(c ^ a) << 1 | b, (e ^ c) << 1 | d};
  }

  /// Bits from `place` on of each byte of two rows: those of the first row in the lower halves of
  /// the result's bytes, those of the second in the upper.
  template <uint32_t kMask>
  static __device__ __forceinline__ uint32_t two_rows(uint32_t first, uint32_t second,
                                                      int32_t place) {
    constexpr uint32_t kOfBytes = kMask * 0x01010101u;
    return (first >> place & kOfBytes) | (second >> place & kOfBytes) << 4;
  }
};

/// Byte i of a word of signed codes.
__device__ __forceinline__ float code_value(uint32_t codes, int i) {
  return static_cast<float>(static_cast<int8_t>(codes >> (8 * i) & 255));
}

/// Float formats: input k of rows 4 * quarter .. + 3.
struct F32Values {
  static __device__ __forceinline__ float4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    return *reinterpret_cast<const float4*>(tile + int64_t{k} * 64 + quarter * 16);
  }
};
struct Bf16Values {
  static __device__ __forceinline__ float4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const uint2 w = *reinterpret_cast<const uint2*>(tile + int64_t{k} * 32 + quarter * 8);
    return {value(w.x << 16), value(w.x & 0xffff0000u), value(w.y << 16), value(w.y & 0xffff0000u)};
  }

 private:
  static __device__ __forceinline__ float value(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
  }
};
struct F16Values {
  static __device__ __forceinline__ float4 at(const uint8_t* tile, int32_t k, int32_t quarter) {
    const uint2 w = *reinterpret_cast<const uint2*>(tile + int64_t{k} * 32 + quarter * 8);
    return {value(w.x), value(w.x >> 16), value(w.y), value(w.y >> 16)};
  }

 private:
  static __device__ __forceinline__ float value(uint32_t bits) {
    return half_value(static_cast<uint16_t>(bits & 0xffffu));
  }
};

}  // namespace moe::cuda
