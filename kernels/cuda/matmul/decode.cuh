#pragma once
// Generic weight decoding per thread: four rows by four inputs of a tile. `quarter` selects rows 4
// * quarter .. + 3.

#include "kernels/cuda/platform.h"
#include "kernels/math.h"
#include "quant/format.h"
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
