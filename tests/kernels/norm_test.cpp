// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/random_floats.h"
#include "tests/support/every_isa.h"
#include "tests/support/packed_matrix.h"

namespace moe {
namespace {

const int kLengths[] = {1, 7, 15, 16, 17, 20, 64, 100, 257, 768};

std::vector<float> run(const CpuKernels& k, const Norm& norm, const std::vector<float>& x) {
  std::vector<float> y(x.size() + 1, -77);
  k.norm_row(norm, x.data(), static_cast<int>(x.size()), y.data());
  EXPECT_EQ(y.back(), -77) << "wrote past the row";
  y.pop_back();
  return y;
}

TEST(NormKernel, EveryIsaGivesTheSameBitsAndTheRightValues) {
  for (NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (int n : kLengths) {
      const auto size = static_cast<size_t>(n);
      const std::vector<float> x = random_floats(size, 1, 3);
      const std::vector<float> w = random_floats(size, 2);
      const std::vector<float> b = random_floats(size, 3);
      const Norm norm{kind, 1e-5f, w.data(), b.data()};
      double mean = 0;
      double square = 0;
      for (float v : x) mean += v / static_cast<double>(n);
      if (kind == NormKind::kRms) mean = 0;
      for (float v : x) square += (v - mean) * (v - mean) / n;
      std::vector<float> first;
      for (const CpuKernels* k : every_isa()) {
        const std::vector<float> y = run(*k, norm, x);
        if (first.empty()) first = y;
        EXPECT_EQ(first_difference(first, y), -1) << k->name << " n " << n;
        for (size_t i = 0; i < size; ++i) {
          const double expected = (x[i] - mean) / std::sqrt(square + 1e-5) * w[i] + b[i];
          ASSERT_NEAR(y[i], expected, 2e-6 * (1 + std::fabs(expected))) << k->name << " n " << n;
        }
      }
    }
  }
}

TEST(NormKernel, ConstantRowsHaveNoVariance) {
  for (const CpuKernels* k : every_isa()) {
    for (int n : kLengths) {
      const std::vector<float> x(static_cast<size_t>(n), 1.3f);
      const Norm norm{NormKind::kLayer, 1e-6f, nullptr, nullptr};
      for (float y : run(*k, norm, x)) ASSERT_EQ(y, 0) << k->name << " n " << n;
    }
  }
}

TEST(NormKernel, NoneCopiesAndInPlaceWorks) {
  for (const CpuKernels* k : every_isa()) {
    std::vector<float> x = random_floats(37, 5);
    EXPECT_EQ(run(*k, Norm(), x), x);
    const Norm norm{NormKind::kRms, 1e-5f, nullptr, nullptr};
    const std::vector<float> y = run(*k, norm, x);
    k->norm_row(norm, x.data(), 37, x.data());
    EXPECT_EQ(x, y);
  }
}

// A model measures at load the lengths that kernels would compute in every call: the same bits.
TEST(RowLength, HasTheBitsOfEveryIsa) {
  constexpr int32_t kRows = 17;
  for (int n : kLengths) {
    const std::vector<float> values = random_floats(static_cast<size_t>(kRows * n), 5, 3);
    for (const FormatId format : {FormatId::kF32, FormatId::kBf16}) {
      const PackedMatrix matrix(format, values, kRows, n);
      std::vector<float> row(static_cast<size_t>(n));
      for (int32_t r = 0; r < kRows; ++r) {
        read_row(matrix.get(), r, row.data());
        const float length = row_length(matrix.get(), r);
        for (const CpuKernels* k : every_isa()) {
          EXPECT_EQ(length, __builtin_sqrtf(k->sum_squares(row.data(), n)))
              << k->name << " n " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moe
