// SPDX-License-Identifier: MIT
#pragma once
// Numbers as a shared f16 times small whole factors: the scales, or the minimums, of a segment of
// int2_k, tcq2 and tcq3 (four bits), int3_k (signed six bits), int4_k (six bits) and int6_k (signed
// bytes).

#include "quant/group_layout.h"

namespace moe {

class Random;

struct FactorRange {
  int least;
  int most;
};
inline constexpr FactorRange kSixBitFactors = {0, 63};
inline constexpr FactorRange kEightBitFactors = {-128, 127};
inline constexpr FactorRange kFourBitFactors = {0, 15};
inline constexpr FactorRange kSignedSixBitFactors = {-32, 31};

struct Factors {
  static constexpr int kMany = groups_of_segment(GroupScale::kEightBits);

  float half = 0;  // an f16
  int factor[kMany] = {};

  float at(int i) const { return half * static_cast<float>(factor[i]); }
};

/// The f16 and factors with the smallest squared differences from n values (at most kMany), each
/// times its weight (null: 1). Numbers that are such products come back exactly. Without negative
/// factors, values with another sign than the largest become 0.
Factors factors_of(FactorRange range, const float* values, const float* weights, int n);

/// The same n numbers as factors_of() writes them.
Factors as_packed(FactorRange range, const Factors& numbers, int n);

/// Writes those of one row to a segment's scales (SixBitScales).
void put_six_bits(uint8_t* scales, int row, const Factors& scale, const Factors& minimum);
/// Random scales of all rows near `even`, with minimums of -middle * scale.
void random_six_bits(Random& random, float even, float middle, uint8_t* scales);

inline void put_half(uint8_t* scales, int at, float value) {
  const uint16_t half = f32_to_f16(value);
  __builtin_memcpy(scales + 2 * at, &half, sizeof half);
}

}  // namespace moe
