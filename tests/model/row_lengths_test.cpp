// SPDX-License-Identifier: MIT
// Lengths of rows, measured once in memory of either kind of device.

#include "src/model/row_lengths.h"

#include <gtest/gtest.h>

#include "tests/support/memory_device.h"
#include "tests/support/packed_matrix.h"

namespace moe {
namespace {

std::vector<float> lengths_of(const Matrix& m) {
  std::vector<float> out;
  for (int32_t row = 0; row < m.rows; ++row) out.push_back(row_length(m, row));
  return out;
}

TEST(RowLengths, AreThoseOfTheMatricesOnEveryDevice) {
  std::vector<float> values(19 * 40);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 7 % 23) - 11.0f;
  }
  std::vector<int8_t> codes(5 * 64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i % 11) - 5;
  const PackedMatrix floats(FormatId::kF32, values, 19, 40);
  const PackedMatrix integers(FormatId::kInt8, codes, 5, 64, ActPrecision::kF32, ScaleKind::kRow,
                              {0.5f, 0.25f, 2, 1, 3});
  for (const bool host : {true, false}) {
    SCOPED_TRACE(host);
    MemoryDevice device(system_allocator(), host);
    RowLengths lengths(system_allocator());
    ASSERT_TRUE(lengths.reserve(device, 24).ok());
    EXPECT_EQ(lengths.bytes(), 96u);
    EXPECT_EQ(device.held(), 96u);
    for (int time = 0; time < 2; ++time) {  // loading that failed is tried again
      lengths.clear();
      const float* first = nullptr;
      const float* second = nullptr;
      ASSERT_TRUE(lengths.measure(floats, &first).ok());
      ASSERT_TRUE(lengths.measure(integers, &second).ok());
      EXPECT_EQ(std::vector<float>(first, first + 19), lengths_of(floats));
      EXPECT_EQ(std::vector<float>(second, second + 5), lengths_of(integers));
    }
  }
}

TEST(RowLengths, NoRowsTakeNoMemory) {
  MemoryDevice device(system_allocator());
  RowLengths lengths(system_allocator());
  EXPECT_TRUE(lengths.reserve(device, 0).ok());
  EXPECT_EQ(lengths.bytes(), 0u);
}

}  // namespace
}  // namespace moe
