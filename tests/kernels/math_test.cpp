// SPDX-License-Identifier: MIT
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace moe {
namespace {

// Largest error in units of the last place over a sample of all floats in [low, high].
template <class F, class G>
double worst_ulp(F f, G exact, float low, float high) {
  double worst = 0;
  for (uint64_t i = 0; i < 0xffffffffULL; i += 9973) {
    const float x = __builtin_bit_cast(float, static_cast<uint32_t>(i));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(static_cast<double>(x));
    const float rounded = static_cast<float>(expected);
    const float found = f(x);
    if (found == rounded) continue;
    if (!std::isfinite(found) || !std::isfinite(rounded)) return 1e9;
    const int exponent = rounded == 0 ? -149 : std::max(std::ilogb(rounded) - 23, -149);
    worst = std::max(worst, std::fabs(found - expected) / std::ldexp(1.0, exponent));
  }
  return worst;
}

TEST(Math, FloatFunctionsAreAccurate) {
  EXPECT_LT(worst_ulp([](float x) { return exp_float(x); }, [](double x) { return std::exp(x); },
                      -110, 100),
            1.0);
  EXPECT_LT(worst_ulp([](float x) { return sigmoid_float(x); },
                      [](double x) { return 1 / (1 + std::exp(-x)); }, -90, 90),
            2.5);
  EXPECT_LT(worst_ulp([](float x) { return erf_lanes<ScalarLanes>(x); },
                      [](double x) { return std::erf(x); }, -10, 10),
            2.0);
  EXPECT_LT(worst_ulp([](float x) { return softplus_float(x); },
                      [](double x) { return std::log1p(std::exp(x)); }, -100, 700),
            3.0);
}

TEST(Math, Extremes) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_float(-inf), 0.0f);
  EXPECT_EQ(exp_float(inf), inf);
  EXPECT_EQ(exp_float(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(exp_float(std::nanf(""))));
  EXPECT_EQ(sigmoid_float(-inf), 0.0f);
  EXPECT_EQ(sigmoid_float(inf), 1.0f);
  EXPECT_EQ(sigmoid_float(0.0f), 0.5f);
  EXPECT_EQ(erf_lanes<ScalarLanes>(inf), 1.0f);
  EXPECT_EQ(erf_lanes<ScalarLanes>(-inf), -1.0f);
  EXPECT_EQ(softplus_float(-inf), 0.0f);
  EXPECT_EQ(softplus_float(inf), inf);
  EXPECT_EQ(softplus_float(-200.0f), 0.0f);
  EXPECT_EQ(softplus_float(3e38f), 3e38f);
  EXPECT_TRUE(std::isnan(softplus_float(std::nanf(""))));
  EXPECT_EQ(exp_double(-1e6), 0.0);
  EXPECT_EQ(exp_double(1e6), std::numeric_limits<double>::infinity());
}

TEST(Math, DoubleFunctionsAreAccurate) {
  for (int i = 0; i < 100000; ++i) {
    const double x = (i - 50000) * 6.6e-3;
    EXPECT_NEAR(exp_double(x) / std::exp(x), 1, 2e-15);
    const double y = 1e-3 + i * 7.3;
    EXPECT_NEAR(log_double(y), std::log(y), 1e-15 * std::max(1.0, std::fabs(std::log(y))));
    EXPECT_NEAR(pow_double(10000.0, -i / 50000.0) * std::pow(10000.0, i / 50000.0), 1, 4e-15);
    double s = 0;
    double c = 0;
    const double angle = (i - 50000) * 671.0 + i * 1e-4;
    sincos_double(angle, &s, &c);
    EXPECT_NEAR(s, std::sin(angle), 1e-15);
    EXPECT_NEAR(c, std::cos(angle), 1e-15);
  }
}

}  // namespace
}  // namespace moe
