// SPDX-License-Identifier: MIT
#pragma once
// The weights of one group, for selecting its scale.

#include <cmath>

#include "quant/group_layout.h"
#include "src/base/inline.h"
#include "src/base/status.h"

namespace moe {

inline constexpr float kLargestHalf = 65504.0f;
inline constexpr float kLeastNormalHalf = 0x1p-14f;
inline constexpr int kGroupSums = 8;  // partial sums, for vectorisation

struct WeightGroup {
  float w[kTileGroup];
  float importance[kTileGroup];
};

/// Reads a row's weights; a short group is filled with copies of the first one, which do not count.
inline WeightGroup read_group(const float* w, const float* importance, int32_t n) {
  WeightGroup g;
  float sum = 0;
  for (int32_t i = 0; i < kTileGroup; ++i) {
    g.w[i] = w[i < n ? i : 0];
    g.importance[i] = i >= n ? 0.0f : importance != nullptr ? importance[i] : 1.0f;
    sum += g.importance[i];
  }
  if (!(sum > 0.0f)) {  // inputs that calibration never reached
    for (int32_t i = 0; i < n; ++i) g.importance[i] = 1.0f;
  }
  return g;
}

inline float sum_of(const float (&sums)[kGroupSums]) {
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

/// Squared differences of the first n weights (a multiple of kGroupSums) from stored(i), what
/// weight i becomes, each times its importance.
template <class Stored>
float group_error(const WeightGroup& g, Stored stored, int n = kTileGroup) {
  float sums[kGroupSums] = {};
  for (int i = 0; i < n; i += kGroupSums) {
    for (int j = 0; j < kGroupSums; ++j) {
      const float d = g.w[i + j] - stored(i + j);
      sums[j] += g.importance[i + j] * (d * d);
    }
  }
  return sum_of(sums);
}

/// Rounded to f16.
inline float as_half(float v) { return f16_to_f32(f32_to_f16(v)); }

/// MOE_ERR_NON_FINITE, or MOE_ERR_RANGE for a weight beyond `most`.
inline Status check_weights(const float* w, int32_t n, float most) {
  for (int32_t i = 0; i < n; ++i) {
    if (!is_finite(w[i])) {
      return Status::error(MOE_ERR_NON_FINITE, "weight %d: found NaN or infinity", i);
    }
    if (std::fabs(w[i]) > most) {
      return Status::error(MOE_ERR_RANGE, "weight %d: expected at most %g, found %g", i,
                           double{most}, double{w[i]});
    }
  }
  return {};
}

}  // namespace moe
