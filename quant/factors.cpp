// SPDX-License-Identifier: MIT
// Fits the factors of a segment's scales or minimums by weighted least squares, and packs six-bit
// ones.
#include "quant/factors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/random.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

constexpr float kLeastHalf = 0x1p-24f;

// The floor of a small number: std::floor() is a call where SSE4.1 is not certain.
int floor_of(float v) {
  const auto whole = static_cast<int>(v);
  return static_cast<float>(whole) > v ? whole - 1 : whole;
}

// The factors nearest to values / half. Returns the sum of the weighted squared differences, or of
// some of them if these reach `least`.
double fit_factors(FactorRange range, const float* values, const float* weights, int n,
                   double least, Factors* out) {
  double error = 0;
  for (int i = 0; i < n && error < least; ++i) {
    const float wanted = std::clamp(values[i] / out->half, static_cast<float>(range.least),
                                    static_cast<float>(range.most));
    out->factor[i] = floor_of(wanted + 0.5f);
    const double d = double{values[i]} - double{out->at(i)};
    error += (weights != nullptr ? double{weights[i]} : 1.0) * d * d;
  }
  return error;
}

// Tries every factor for the largest value, those far from 0 first. A factor below 0 is the same as
// one above 0 with the negative f16, but for the least.
Factors best_factors(FactorRange range, const float* values, const float* weights, int n,
                     double* least) {
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(values[i]) > std::fabs(largest)) largest = values[i];
  }
  Factors best;
  *least = std::numeric_limits<double>::max();
  if (largest == 0.0f) {
    *least = 0;
    return best;
  }
  const auto consider = [&](int factor) {
    Factors found;
    const float wanted = largest / static_cast<float>(factor);
    found.half = as_half(wanted);
    if (found.half == 0.0f) found.half = std::copysign(kLeastHalf, wanted);
    if (std::fabs(found.half) > kLargestHalf) return;
    const double error = fit_factors(range, values, weights, n, *least, &found);
    if (!(error < *least)) return;
    *least = error;
    best = found;
  };
  if (-range.least > range.most) consider(range.least);
  // Twice a factor with half the f16 is the same number, if that f16 is exact.
  const bool exact = std::fabs(largest) >= static_cast<float>(range.most) * kLeastNormalHalf;
  const int last = exact ? range.most / 2 : 0;
  for (int factor = range.most; factor > last && *least > 0; --factor) consider(factor);
  return best;
}

}  // namespace

// With the largest factors possible.
Factors as_packed(FactorRange range, const Factors& numbers, int n) {
  float values[Factors::kMany];
  for (int i = 0; i < n; ++i) values[i] = numbers.at(i);
  double error;
  const Factors found = best_factors(range, values, nullptr, n, &error);
  return found.half != 0.0f ? found : numbers;  // all factors are 0
}

Factors factors_of(FactorRange range, const float* values, const float* weights, int n) {
  double error;
  const Factors best = best_factors(range, values, weights, n, &error);
  return error > 0 && best.half != 0.0f ? as_packed(range, best, n) : best;
}

void put_six_bits(uint8_t* scales, int row, const Factors& scale, const Factors& minimum) {
  put_half(scales, row, scale.half);
  put_half(scales, kTileRows + row, minimum.half);
  for (int g = 0; g < groups_of_segment(GroupScale::kSixBits); ++g) {
    const int low = (scale.factor[g] & 15) | (minimum.factor[g] & 15) << 4;
    scales[SixBitScales::kLow + kTileRows * g + row] = static_cast<uint8_t>(low);
    const int high = scale.factor[g] >> 4 | minimum.factor[g] >> 4 << 2;
    const int shift = g / 4 * 4;
    uint8_t& byte = scales[SixBitScales::kHigh + kTileRows * (g % 4) + row];
    byte = static_cast<uint8_t>((byte & ~(15 << shift)) | high << shift);
  }
}

void random_six_bits(Random& random, float even, float middle, uint8_t* scales) {
  constexpr int kGroups = groups_of_segment(GroupScale::kSixBits);
  for (int row = 0; row < kTileRows; ++row) {
    Factors scale = {as_half(even / 57), {}};
    for (int g = 0; g < kGroups; ++g) {
      scale.factor[g] = 51 + static_cast<int>(13 * random.uniform());
    }
    Factors low = scale;
    low.half = as_half(-middle * scale.half);
    put_six_bits(scales, row, as_packed(kSixBitFactors, scale, kGroups),
                 as_packed(kSixBitFactors, low, kGroups));
  }
}

}  // namespace moe
