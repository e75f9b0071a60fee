// SPDX-License-Identifier: MIT
#pragma once
// float, half and bfloat16 bits: the definition that every kernel matches bit for bit.
// Plain C headers only, and forced inline: the files of kernels/cpu/isa include this.

#include <stdint.h>

#include "src/base/inline.h"

namespace moe {

MOE_INLINE float bits_to_f32(uint32_t bits) {
  float r;
  __builtin_memcpy(&r, &bits, sizeof r);
  return r;
}

MOE_INLINE uint32_t f32_to_bits(float value) {
  uint32_t r;
  __builtin_memcpy(&r, &value, sizeof r);
  return r;
}

MOE_INLINE float bf16_to_f32(uint16_t b) { return bits_to_f32(static_cast<uint32_t>(b) << 16); }

/// Round half to even; NaN remains a quiet NaN.
MOE_INLINE uint16_t f32_to_bf16(float value) {
  const uint32_t u = f32_to_bits(value);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/// Exact. A signalling NaN becomes the quiet one, on a GPU any NaN the canonical one.
MOE_INLINE float f16_to_f32(uint16_t h) {
#if defined(__CUDA_ARCH__)  // one instruction
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(h));
  return value;
#else
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 1023u;
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return bits_to_f32(sign | 0x7F800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // mantissa * 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return bits_to_f32(sign | f32_to_bits(magnitude));
  }
  return bits_to_f32(sign | ((exponent + 112u) << 23) | (mantissa << 13));
#endif
}

/// Round half to even; overflow gives infinity, tiny values denormals, NaN a quiet NaN.
MOE_INLINE uint16_t f32_to_f16(float value) {
  const uint32_t u = f32_to_bits(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // from 65520 on
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at 2^-24
    const float shifted = bits_to_f32(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (f32_to_bits(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace moe
