// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/random_floats.h"
#include "tests/support/every_isa.h"

namespace moe {
namespace {

const Activation kKinds[] = {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                             Activation::kSilu, Activation::kRelu2};

double exact(Activation kind, double x, double alpha) {
  switch (kind) {
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-alpha * x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kRelu2:
      break;
  }
  return std::max(x, 0.0) * std::max(x, 0.0);
}

struct Output {
  std::vector<float> y;
  uint32_t positive;
};

Output run(const CpuKernels& k, const ActivationConfig& c, const float* gate,
           const std::vector<float>& up) {
  Output out{std::vector<float>(up.size() + 1, -77), 0};
  out.positive = k.activation(c, gate, up.data(), static_cast<int>(up.size()), out.y.data());
  EXPECT_EQ(out.y.back(), -77) << "wrote past the row";
  out.y.pop_back();
  return out;
}

TEST(ActivationKernel, TanhIsExactNearZeroAndFarAway) {
  std::vector<float> x = {0,     -0.0f,    1e-30f, 1e-4f, -0.01f, 0.2499f,
                          0.25f, -0.2501f, 1,      -3,    20,     -90};
  for (int i = -400; i < 400; ++i) x.push_back(static_cast<float>(i) * 0.0123f);
  for (const CpuKernels* k : every_isa()) {
    const Output out = run(*k, {Activation::kTanh}, nullptr, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::tanh(static_cast<double>(x[i]));
      EXPECT_NEAR(out.y[i], expected, 5e-7 * std::fabs(expected)) << k->name << " " << x[i];
    }
  }
}

TEST(ActivationKernel, PlainAndGatedOnEveryIsa) {
  for (Activation kind : kKinds) {
    for (float limit : {0.0f, 2.5f}) {
      for (bool gated : {false, true}) {
        const std::vector<float> gate = random_floats(203, 1, 3);
        const std::vector<float> up = random_floats(203, 2, 3);
        const ActivationConfig c{kind, 1.702f, limit, 0.5f};
        Output first;
        for (const CpuKernels* k : every_isa()) {
          const Output out = run(*k, c, gated ? gate.data() : nullptr, up);
          if (first.y.empty()) first = out;
          EXPECT_EQ(first_difference(first.y, out.y), -1) << k->name;
          EXPECT_EQ(first.positive, out.positive);
          uint32_t positive = 0;
          for (size_t i = 0; i < up.size(); ++i) {
            double g = gated ? gate[i] : up[i];
            double u = up[i];
            if (gated && limit > 0) {
              g = std::min<double>(g, limit);
              u = std::clamp<double>(u, -limit, limit);
            }
            const double a = exact(kind, g, 1.702f);
            positive += a > 0 ? 1 : 0;
            const double expected = gated ? a * (u + 0.5) : a;
            // 1 + erf(x) suffers cancellation below 0, so the error is relative to the inputs.
            const double inputs = std::fabs(g) * (std::fabs(u) + 1);
            ASSERT_NEAR(out.y[i], expected, 2e-7 * inputs + 2e-6 * std::fabs(expected));
          }
          EXPECT_EQ(out.positive, positive);
        }
      }
    }
  }
}

TEST(ActivationKernel, ExtremesAndTails) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const CpuKernels* k : every_isa()) {
    for (Activation kind : kKinds) {
      const ActivationConfig c{kind, 1, 0, 0};
      const Output big = run(*k, c, nullptr, {1e4f, -1e4f, 3e38f, -3e38f, 0, -0.0f});
      EXPECT_EQ(big.y[1], 0) << k->name;
      EXPECT_EQ(big.y[3], 0) << k->name;
      EXPECT_EQ(big.y[0], kind == Activation::kRelu2 ? 1e8f : 1e4f);
      EXPECT_EQ(big.y[2], kind == Activation::kRelu2 ? inf : 3e38f);
      EXPECT_EQ(big.positive, 2u);
      const Output nan = run(*k, c, nullptr, {std::nanf("")});
      EXPECT_TRUE(std::isnan(nan.y[0])) << "a NaN must not be hidden";
    }
  }
}

TEST(ActivationKernel, GateRowMultipliesBySigmoids) {
  for (int n : {1, 16, 37}) {
    const auto size = static_cast<size_t>(n);
    std::vector<float> gate = random_floats(size, 1, 20);
    gate[0] = -200;  // its sigmoid underflows
    const std::vector<float> x = random_floats(size, 2);
    std::vector<float> first;
    for (const CpuKernels* k : every_isa()) {
      std::vector<float> y = x;
      y.push_back(-77);
      k->gate_row(gate.data(), n, y.data());
      for (size_t i = 0; i < size; ++i) {
        const double open = 1 / (1 + std::exp(-static_cast<double>(gate[i])));
        ASSERT_NEAR(y[i], x[i] * open, 1e-6) << k->name;
      }
      EXPECT_EQ(y[size], -77) << k->name;
      if (first.empty()) first = y;
      EXPECT_EQ(first_difference(first, y), -1) << k->name;
    }
  }
}

TEST(ActivationKernel, AddScaledIsOneRounding) {
  for (const CpuKernels* k : every_isa()) {
    const std::vector<float> x = random_floats(83, 6);
    std::vector<float> y = random_floats(84, 7);
    const std::vector<float> before = y;
    k->add_scaled(0.37f, x.data(), 83, y.data());
    for (size_t i = 0; i < 83; ++i) EXPECT_EQ(y[i], std::fma(0.37f, x[i], before[i]));
    EXPECT_EQ(y[83], before[83]);
  }
}

}  // namespace
}  // namespace moe
