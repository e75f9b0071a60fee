// SPDX-License-Identifier: MIT
#pragma once
// Quantises floats: BitNet's absmean ternary, streamed for matrices too large for memory, and
// absmax int8 rows.

#include <cstdint>

#include "quant/weight_format.h"
#include "src/base/status.h"

namespace moe {

/// The mean of |w| over a whole tensor, added in pieces. [b1.58] figure 3. Weight i goes to partial
/// sum i % 8 in double, in order, so the result does not depend on the pieces.
class AbsMean {
 public:
  /// MOE_ERR_NON_FINITE if a weight is NaN or infinite.
  Status add(const float* w, int64_t n);
  /// max(mean |w|, 1e-5). MOE_ERR_SHAPE if nothing was added.
  Result<double> scale() const;

 private:
  static constexpr int kSums = 8;

  double sums_[kSums] = {};
  int64_t n_ = 0;
};

/// codes = clip(round_half_even(w / scale), -1, 1).
void ternary_codes(const float* w, int64_t n, double scale, int8_t* codes);

/// One row: scale = max |w| / 127 (1 for a row of zeros), codes = clip(round_half_even(w / scale),
/// -127, 127), all divisions in float32. MOE_ERR_NON_FINITE.
Status int8_row(const float* w, int64_t n, int8_t* codes, float* scale);

/// Quantises rows [first, first + n) of a matrix, at w, to a tile of a format with
/// WeightFormat::quantise_tile. Errors name the matrix row. `importance` (cols) or null.
Status quantise_tile(const WeightFormat& format, const float* w, int32_t first, int n, int32_t cols,
                     const float* importance, uint8_t* tile);

}  // namespace moe
