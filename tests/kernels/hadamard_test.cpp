// SPDX-License-Identifier: MIT
#include "kernels/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <random>

#include "kernels/device.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/cpu_devices.h"
#include "tests/support/packed_matrix.h"

namespace moe {
namespace {

// Row i of the matrix times x.
double product(int i, const std::vector<float>& x) {
  double sum = 0;
  for (size_t j = 0; j < x.size(); ++j) {
    sum +=
        std::popcount(static_cast<unsigned>(i) & static_cast<unsigned>(j)) % 2 == 1 ? -x[j] : x[j];
  }
  return sum;
}

TEST(Hadamard, IsTheSylvesterMatrix) {
  for (int n = 2; n <= 512; n *= 2) {
    std::vector<float> x(static_cast<size_t>(n));
    std::mt19937 random(static_cast<unsigned>(n));
    for (float& v : x) v = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    std::vector<float> y = x;
    hadamard(0.5f, n, y.data());
    for (int i = 0; i < n; ++i) {  // whole numbers: without rounding
      ASSERT_EQ(y[static_cast<size_t>(i)], 0.5 * product(i, x)) << n;
    }
  }
}

TEST(Hadamard, EveryIsaGivesTheBitsOfTheDefinition) {
  for (int n = 2; n <= 4096; n *= 2) {
    for (const float size : {1.0f, 1e-38f, 1e30f}) {
      std::vector<float> x = random_floats(static_cast<size_t>(n), 7, size);
      x[0] = -0.0f;
      x.back() = FLT_MAX;  // sums may be infinite, but not NaN
      std::vector<float> expected = x;
      hadamard(hadamard_scale(n), n, expected.data());
      for (const CpuKernels* k : every_isa()) {
        std::vector<float> y = x;
        y.push_back(-77);
        k->hadamard(hadamard_scale(n), n, y.data());
        EXPECT_EQ(y.back(), -77) << "wrote past the row";
        y.pop_back();
        EXPECT_EQ(first_difference(expected, y), -1) << k->name << " n " << n;
      }
    }
  }
}

TEST(Hadamard, RowsAreRotatedBackByTheInverse) {
  const std::vector<float> x = random_floats(96, 1);
  std::vector<float> signs(96);
  for (size_t i = 0; i < signs.size(); ++i) signs[i] = i % 3 == 0 ? -1.0f : 1.0f;
  for (const int block : {2, 8, 32}) {
    const InputRotation r{block, signs.data()};
    std::vector<float> y(96), first(x.begin(), x.begin() + block);
    rotate_row(r, x.data(), 96, y.data());
    for (int i = 0; i < block; ++i) first[static_cast<size_t>(i)] *= signs[static_cast<size_t>(i)];
    for (int i = 0; i < block; ++i) {
      ASSERT_NEAR(y[static_cast<size_t>(i)], product(i, first) / std::sqrt(block), 1e-5);
    }
    unrotate_row(r, 96, y.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 1e-5) << block;
  }
}

// Rows with a stride, with and without a norm, and a matrix without a rotation beside one that has
// it.
TEST(Hadamard, MatricesReadRotatedInputs) {
  const int32_t d_in = 48;
  std::vector<float> signs(48, 1.0f);
  for (size_t i = 0; i < signs.size(); i += 5) signs[i] = -1;
  const InputRotation rotation{16, signs.data()};
  const PackedMatrix plain(FormatId::kF32, random_floats(33 * 48, 1), 33, d_in);
  const PackedMatrix other(FormatId::kF32, random_floats(20 * 48, 2), 20, d_in);
  Matrix rotated = plain.get();
  rotated.rotation = &rotation;
  const std::vector<float> x = random_floats(3 * 70, 4);
  const std::vector<float> weight = random_floats(48, 5);
  for (const NormKind kind : {NormKind::kNone, NormKind::kRms}) {
    std::vector<float> reference;
    for (const OpenedDevice& d : all_devices()) {
      StreamShape shape;
      shape.max_rows = 3;
      shape.d_model = shape.max_d_in = d_in;
      Result<Stream*> stream = d.device->open_stream(shape);
      ASSERT_TRUE(stream.ok());
      const Norm norm{kind, 1e-5f, weight.data(), nullptr};
      std::vector<float> a(3 * 33), b(3 * 20), normed(3 * 48), expected(3 * 33), unrotated(3 * 20);
      const LinearOut outs[] = {{&rotated, nullptr, a.data(), 33, false, 1},
                                {&other.get(), nullptr, b.data(), 20, false, 1}};
      d.device->linear(*stream.value(), {x.data(), 70, 3, d_in, norm, outs, 2});
      for (size_t r = 0; r < 3; ++r) {
        every_isa()[0]->norm_row(norm, x.data() + r * 70, d_in, normed.data() + r * 48);
      }
      const LinearOut second{&other.get(), nullptr, unrotated.data(), 20, false, 1};
      d.device->linear(*stream.value(), {normed.data(), d_in, 3, d_in, Norm(), &second, 1});
      for (size_t r = 0; r < 3; ++r) {
        rotate_row(rotation, normed.data() + r * 48, d_in, normed.data() + r * 48);
      }
      const LinearOut first{&plain.get(), nullptr, expected.data(), 33, false, 1};
      d.device->linear(*stream.value(), {normed.data(), d_in, 3, d_in, Norm(), &first, 1});
      ASSERT_TRUE(d.device->sync(*stream.value()).ok());
      d.device->close_stream(stream.value());
      EXPECT_EQ(first_difference(a, expected), -1) << d.name;
      EXPECT_EQ(first_difference(b, unrotated), -1) << d.name;
      a.insert(a.end(), b.begin(), b.end());
      if (reference.empty()) reference = a;
      EXPECT_EQ(first_difference(reference, a), -1) << d.name;
    }
  }
}

TEST(Hadamard, EmbeddingsAreRotatedBack) {
  const PackedMatrix table(FormatId::kF32, random_floats(20 * 32, 3), 20, 32);
  std::vector<float> signs(32, -1.0f);
  const InputRotation rotation{8, signs.data()};
  Matrix rotated = table.get();
  rotated.rotation = &rotation;
  const BatchRow rows[] = {{0, 0, 3}, {0, 1, 17}};
  for (const OpenedDevice& d : all_devices()) {
    StreamShape shape;
    shape.max_rows = 2;
    shape.d_model = 32;
    Result<Stream*> stream = d.device->open_stream(shape);
    ASSERT_TRUE(stream.ok());
    std::vector<float> found(64), expected(64);
    d.device->embed(*stream.value(), table.get(), Matrix(), rows, 2, 1, expected.data());
    d.device->embed(*stream.value(), rotated, Matrix(), rows, 2, 3, found.data());
    d.device->close_stream(stream.value());
    for (size_t r = 0; r < 2; ++r) unrotate_row(rotation, 32, expected.data() + r * 32);
    for (float& v : expected) v *= 3;
    EXPECT_EQ(first_difference(expected, found), -1) << d.name;
  }
}

}  // namespace
}  // namespace moe
