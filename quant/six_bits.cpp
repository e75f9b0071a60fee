#include "quant/six_bits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/random.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

// The factors nearest to values / half. Returns the sum of the weighted squared differences.
double fit_factors(const float* values, const float* weights, int n, SixBits* out) {
  double error = 0;
  for (int i = 0; i < n; ++i) {
    const float wanted = std::clamp(values[i] / out->half, 0.0f, float{SixBits::kLargest});
    out->factor[i] = static_cast<int>(wanted + 0.5f);
    const double d = double{values[i]} - double{out->at(i)};
    error += (weights != nullptr ? double{weights[i]} : 1.0) * d * d;
  }
  return error;
}

// Of several ways to write the same numbers, the one with the largest factors.
SixBits six_bits_again(const SixBits& numbers, int n) {
  float values[SixBits::kMany];
  for (int i = 0; i < n; ++i) values[i] = numbers.at(i);
  return six_bits(values, nullptr, n);
}

}  // namespace

SixBits six_bits(const float* values, const float* weights, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(values[i]) > std::fabs(largest)) largest = values[i];
  }
  SixBits best;
  double least = std::numeric_limits<double>::max();
  for (int factor = SixBits::kLargest; factor > 0 && least > 0; --factor) {
    SixBits found;
    found.half = as_half(largest / static_cast<float>(factor));
    if (found.half == 0.0f || std::fabs(found.half) > kLargestHalf) continue;
    const double error = fit_factors(values, weights, n, &found);
    if (!(error < least)) continue;
    least = error;
    best = found;
  }
  return least > 0 && best.half != 0.0f ? six_bits_again(best, n) : best;
}

void put_six_bits(uint8_t* scales, int row, const SixBits& scale, const SixBits& minimum) {
  put_half(scales, row, scale.half);
  put_half(scales, kTileRows + row, minimum.half);
  for (int g = 0; g < SixBits::kMany; ++g) {
    const int low = (scale.factor[g] & 15) | (minimum.factor[g] & 15) << 4;
    scales[SixBitScales::kLow + kTileRows * g + row] = static_cast<uint8_t>(low);
    const int high = scale.factor[g] >> 4 | minimum.factor[g] >> 4 << 2;
    const int shift = g / 4 * 4;
    uint8_t& byte = scales[SixBitScales::kHigh + kTileRows * (g % 4) + row];
    byte = static_cast<uint8_t>((byte & ~(15 << shift)) | high << shift);
  }
}

void random_six_bits(Random& random, float even, float middle, uint8_t* scales) {
  for (int row = 0; row < kTileRows; ++row) {
    SixBits scale = {as_half(even / 57), {}};
    for (int& factor : scale.factor) factor = 51 + static_cast<int>(13 * random.uniform());
    SixBits low = scale;
    low.half = as_half(-middle * scale.half);
    put_six_bits(scales, row, six_bits_again(scale, SixBits::kMany),
                 six_bits_again(low, SixBits::kMany));
  }
}

}  // namespace moe
