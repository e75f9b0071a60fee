// SPDX-License-Identifier: MIT
// Fits the factors of a segment's scales or minimums by weighted least squares, and packs six-bit
// ones.
#include "quant/factors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
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

/// The n numbers to fit, and their weights (null: 1).
struct Wanted {
  FactorRange range;
  const float* values;
  const float* weights;
  int n;
  int largest;  // where it is

  double weight(int i) const { return weights != nullptr ? double{weights[i]} : 1.0; }
};

// The first of the values farthest from 0.
int place_of_largest(const float* values, int n) {
  const auto smaller = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
  return static_cast<int>(std::max_element(values, values + n, smaller) - values);
}

int nearest_factor(FactorRange range, float value, float half) {
  const float wanted =
      std::clamp(value / half, static_cast<float>(range.least), static_cast<float>(range.most));
  return floor_of(wanted + 0.5f);
}

// The factors nearest to the values / half. Returns the sum of the weighted squared differences, or
// of some of them if these reach `least`.
double fit_factors(const Wanted& w, double least, Factors* out) {
  double error = 0;
  for (int i = 0; i < w.n && error < least; ++i) {
    out->factor[i] = nearest_factor(w.range, w.values[i], out->half);
    const double d = double{w.values[i]} - double{out->at(i)};
    error += w.weight(i) * d * d;
  }
  return error;
}

// The f16 with which `factor` gives about the largest value; 0: there is none.
float half_for(const Wanted& w, int factor) {
  const float wanted = w.values[w.largest] / static_cast<float>(factor);
  const float half = as_half(wanted);
  if (half == 0.0f) return std::copysign(kLeastHalf, wanted);
  return std::fabs(half) > kLargestHalf ? 0.0f : half;
}

// Calls f(factor) with every factor that the largest value may have, until one returns true. Those
// far from 0 are first. A factor below 0 is the same as one above 0 with the negative f16, but for
// the least.
template <typename F>
bool any_factor(const Wanted& w, F&& f) {
  if (-w.range.least > w.range.most && f(w.range.least)) return true;
  // Twice a factor with half the f16 is the same number, if that f16 is exact.
  const float largest = std::fabs(w.values[w.largest]);
  const bool exact = largest >= static_cast<float>(w.range.most) * kLeastNormalHalf;
  const int last = exact ? w.range.most / 2 : 0;
  for (int factor = w.range.most; factor > last; --factor) {
    if (f(factor)) return true;
  }
  return false;
}

// An f16 has 11 significant bits and a factor 7: in their product the last 6 bits of a float are 0.
bool may_be_product(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return (bits & 63) == 0;
}

// Whether the numbers are products already, as those of a packed checkpoint are: the first factors
// without any difference. Few give the largest value exactly.
bool find_exact(const Wanted& w, Factors* out) {
  const float largest = w.values[w.largest];
  if (!(w.weight(w.largest) > 0) || !may_be_product(largest)) return false;
  return any_factor(w, [&](int factor) {
    out->half = half_for(w, factor);
    if (out->half == 0.0f) return false;
    const int nearest = nearest_factor(w.range, largest, out->half);
    if (out->half * static_cast<float>(nearest) != largest) return false;
    return fit_factors(w, std::numeric_limits<double>::denorm_min(), out) == 0;
  });
}

Factors best_factors(FactorRange range, const float* values, const float* weights, int n,
                     double* least) {
  const Wanted w = {.range = range,
                    .values = values,
                    .weights = weights,
                    .n = n,
                    .largest = place_of_largest(values, n)};
  *least = 0;
  if (w.values[w.largest] == 0.0f) return {};
  Factors best;
  if (find_exact(w, &best)) return best;
  *least = std::numeric_limits<double>::max();
  best = {};
  any_factor(w, [&](int factor) {
    Factors found;
    found.half = half_for(w, factor);
    if (found.half == 0.0f) return false;
    const double error = fit_factors(w, *least, &found);
    if (error < *least) {
      *least = error;
      best = found;
    }
    return *least == 0;
  });
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
