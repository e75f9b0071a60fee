// SPDX-License-Identifier: MIT
#pragma once
// MOE_INLINE: no copy that the linker could share between files compiled for different CPUs.

#include <stdint.h>

#if defined(__CUDACC__)
#define MOE_INLINE static __host__ __device__ __forceinline__
#else
#define MOE_INLINE static inline __attribute__((always_inline))
#endif

namespace moe {

/// Neither NaN nor infinite. By the bits, on every device: a compiler that is told to assume finite
/// numbers may take a comparison for granted.
MOE_INLINE bool is_finite(float v) {
  return (__builtin_bit_cast(uint32_t, v) & 0x7F800000u) != 0x7F800000u;
}

}  // namespace moe
