// SPDX-License-Identifier: MIT
#pragma once
// The definition of rotated inputs (QuIP#, Tseng et al. 2024, section 3): signs, then a Hadamard
// matrix on blocks of neighbours.

#include "quant/format.h"

namespace moe {

/// x = scale * H x over n = 2^k values, H the Sylvester-Hadamard matrix: element (i, j) is -1 if i
/// and j share an odd number of bits, otherwise 1. The order of the sums is part of the definition.
inline void hadamard(float scale, int n, float* x) {
  for (int h = n / 2; h > 0; h /= 2) {
    for (int i = 0; i < n; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i], b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  for (int i = 0; i < n; ++i) x[i] *= scale;
}

/// With this scale H is its own inverse.
inline float hadamard_scale(int block) { return 1 / __builtin_sqrtf(static_cast<float>(block)); }

/// y = signs * x; y may be x.
inline void apply_signs(const InputRotation& r, const float* x, int64_t begin, int64_t end,
                        float* y) {
  for (int64_t i = begin; i < end; ++i) y[i] = r.signs == nullptr ? x[i] : r.signs[i] * x[i];
}

/// A matrix reads y in place of x: H (signs * x) in each block of n values. y may be x.
inline void rotate_row(const InputRotation& r, const float* x, int32_t n, float* y) {
  apply_signs(r, x, 0, n, y);
  for (int32_t i = 0; i < n; i += r.block) hadamard(hadamard_scale(r.block), r.block, y + i);
}

/// The inverse, of a row of an embedding that is stored rotated: signs * (H x).
inline void unrotate_row(const InputRotation& r, int32_t n, float* x) {
  for (int32_t i = 0; i < n; i += r.block) hadamard(hadamard_scale(r.block), r.block, x + i);
  apply_signs(r, x, 0, n, x);
}

}  // namespace moe
