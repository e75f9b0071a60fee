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
    // A byte permutation looks up four codes in eight values; bit 3 of each code selects between
    // the results from both halves of the table.
    constexpr auto kWord = [](uint64_t values, int i) {
      return static_cast<uint32_t>(values >> (32 * i));
    };
    const uint32_t places = codes & 0x77777777u;
    const uint32_t halves = 0x32103210u | (codes & 0x88888888u) >> 1;
    uint32_t v[2];
    MOE_CUDA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t low = __byte_perm(kWord(Layout::kLowValues, 0), kWord(Layout::kLowValues, 1),
                                       places >> (16 * i));
      const uint32_t high = __byte_perm(kWord(Layout::kHighValues, 0),
                                        kWord(Layout::kHighValues, 1), places >> (16 * i));
      v[i] = __byte_perm(low, high, halves >> (16 * i));
    }
    return {__byte_perm(v[0], v[1], 0x6420), __byte_perm(v[0], v[1], 0x7531)};
  }
}

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
