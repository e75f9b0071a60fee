// SPDX-License-Identifier: MIT
#pragma once
// The quantisers over whole arrays.

#include "quant/activation.h"
#include "quant/quantise.h"

namespace moe {

/// w (rows, cols) -> codes (rows, cols) and one scale; w ~ codes * scale. MOE_ERR_NON_FINITE,
/// MOE_ERR_SHAPE (empty).
inline Status absmean_ternary(const float* w, int64_t rows, int64_t cols, int8_t* codes,
                              float* scale) {
  AbsMean mean;
  MOE_TRY(mean.add(w, rows * cols));
  MOE_ASSIGN(const double exact, mean.scale());
  ternary_codes(w, rows * cols, exact, codes);
  *scale = static_cast<float>(exact);
  return {};
}

/// w (rows, cols) -> codes (rows, cols), scales (rows).
inline Status int8_rows(const float* w, int64_t rows, int64_t cols, int8_t* codes, float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    MOE_TRY(int8_row(w + row * cols, cols, codes + row * cols, scales + row));
  }
  return {};
}

/// A row per token: x (rows, cols) -> codes (rows, cols), scales (rows) = 127 / max(amax, 1e-5),
/// the factors applied to inputs. MOE_ERR_NON_FINITE.
inline Status absmax_int8(const float* x, int64_t rows, int64_t cols, int8_t* codes,
                          float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    const ActScale s = quantise_activations(x + row * cols, cols, -128, codes + row * cols);
    if (!(s.scale > 0)) return Status::error(MOE_ERR_NON_FINITE, "an input is not finite");
    scales[row] = s.to_code;
  }
  return {};
}

}  // namespace moe
