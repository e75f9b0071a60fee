// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/kernels/random_floats.h"
#include "tests/support/every_isa.h"

namespace moe {
namespace {

struct RotateShape {
  int dims;
  int n_heads;
  int head_dim;
};
// Odd sizes, a single pair, and heads with dimensions that are not rotated.
const RotateShape kRotateShapes[] = {{2, 1, 2},   {6, 3, 9},   {30, 2, 32},
                                     {34, 2, 40}, {64, 5, 64}, {128, 3, 130}};

// The definition of rotate(), pair by pair.
std::vector<float> turned(const std::vector<float>& row, const RotateShape& s, bool neighbours,
                          std::vector<float> x) {
  for (int h = 0; h < s.n_heads; ++h) {
    for (int j = 0; j < s.dims / 2; ++j) {
      const int first = h * s.head_dim + (neighbours ? 2 * j : j);
      float& a = x[static_cast<size_t>(first)];
      float& b = x[static_cast<size_t>(first + (neighbours ? 1 : s.dims / 2))];
      const float cos = row[static_cast<size_t>(2 * j)];
      const float sin = row[static_cast<size_t>(2 * j + 1)];
      const float from = a;
      a = from * cos - b * sin;
      b = b * cos + from * sin;
    }
  }
  return x;
}

TEST(RotateKernel, EveryIsaGivesTheBitsOfTheDefinitionAndLeavesTheRestAlone) {
  unsigned seed = 1;
  for (const RotateShape& s : kRotateShapes) {
    const std::vector<float> row = random_floats(static_cast<size_t>(s.dims), ++seed);
    const auto size = static_cast<size_t>(s.n_heads * s.head_dim);
    for (float scale : {1.0f, 1e30f, 1e-42f}) {
      const std::vector<float> x = random_floats(size, ++seed, scale);
      for (bool neighbours : {false, true}) {
        std::vector<float> expected = turned(row, s, neighbours, x);
        expected.push_back(-77);  // after the last head
        for (const CpuKernels* k : every_isa()) {
          std::vector<float> y = x;
          y.push_back(-77);
          k->rotate(row.data(), s.dims, neighbours, y.data(), s.n_heads, s.head_dim);
          EXPECT_EQ(first_difference(expected, y), -1)
              << k->name << " dims " << s.dims << " neighbours " << neighbours << " x " << scale;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moe
