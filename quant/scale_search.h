// SPDX-License-Identifier: MIT
#pragma once
// Scales and codes of a segment of int2_k or int3_k with a small error. int4_k's search, in
// four_bit_quantise.cpp, and int6_k's, in int6_k.cpp, find these too.

#include "quant/factors.h"
#include "quant/weight_group.h"

namespace moe {

struct SegmentFit {
  static constexpr int kInputs = kTileGroup / 2;  // of a group

  Factors scale;
  Factors minimum;  // of two bits
  int8_t codes[Factors::kMany][kInputs];
};

/// The largest weights that they take.
inline constexpr float kLargestTwoBits = kLargestHalf;
inline constexpr float kLargestThreeBits = 32 * 3 * kLargestHalf;

/// For n weights (at most 256), each square weighted by importance (null: 1).
void fit_two_bits(const float* w, const float* importance, int32_t n, SegmentFit* out);
void fit_three_bits(const float* w, const float* importance, int32_t n, SegmentFit* out);

}  // namespace moe
