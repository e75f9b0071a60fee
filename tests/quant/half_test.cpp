// SPDX-License-Identifier: MIT
#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace moe {
namespace {

double half_value(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const double mantissa = h & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryHalfIsExactAndComesBack) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float f = f16_to_f32(bits);
    if ((h & 0x7C00) == 0x7C00) {
      EXPECT_EQ(std::isnan(f), (h & 0x3FF) != 0);
      EXPECT_EQ(std::isnan(f) || std::isinf(f), true);
      continue;
    }
    EXPECT_EQ(static_cast<double>(f), half_value(bits));
    EXPECT_EQ(f32_to_f16(f), bits);
  }
}

TEST(Half, RoundsHalfToEvenBetweenNeighbours) {
  for (uint32_t h = 0; h < 0x7BFF; ++h) {
    const double low = half_value(static_cast<uint16_t>(h));
    const double high = half_value(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    EXPECT_EQ(f32_to_f16(middle), (h & 1) == 0 ? h : h + 1) << h;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), h);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e30f)), h + 1);
    EXPECT_EQ(f32_to_f16(-middle), 0x8000 | ((h & 1) == 0 ? h : h + 1));
  }
}

TEST(Half, OverflowAndNan) {
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65519.99f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xFC00);
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7C00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST(Bfloat16, RoundsHalfToEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(f32_to_bf16(bits_to_f32(0x3F808000)), 0x3F80);
  EXPECT_EQ(f32_to_bf16(bits_to_f32(0x3F818000)), 0x3F82);
  EXPECT_EQ(f32_to_bf16(bits_to_f32(0x3F808001)), 0x3F81);
  EXPECT_EQ(f32_to_bf16(bits_to_f32(0x7F7FFFFF)), 0x7F80);  // infinity
  for (uint32_t b = 0; b < 0x7F80; ++b) {
    EXPECT_EQ(f32_to_bf16(bf16_to_f32(static_cast<uint16_t>(b))), b);
  }
}

}  // namespace
}  // namespace moe
