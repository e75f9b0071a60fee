// SPDX-License-Identifier: MIT
// Memory that is measured and placed by the same code.

#include "src/base/carver.h"

#include <gtest/gtest.h>

#include "src/base/bounded_list.h"
#include "src/base/host_buffer.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

struct Parts {
  float* row = nullptr;
  std::span<uint8_t> bytes;
  BoundedList<int32_t> list;
  struct Named {
    int32_t id = 7;
  };
  std::span<Named> named;

  void lay_out(Carver& c, int64_t n) {
    c.take(&row, n, 3);
    c.take(&bytes, n);
    list.lay_out(c, n);
    c.take(&named, n);
  }
};

TEST(HostBufferTest, AllocatesWhatIsMeasured) {
  FailingAllocator memory;
  for (const int64_t n : {0, 1, 5, 1000}) {
    Parts parts;
    HostBuffer buffer(memory.get());
    const size_t before = memory.live_bytes();
    const uint64_t expected = measured([&](Carver& c) { parts.lay_out(c, n); });
    EXPECT_TRUE(parts.bytes.empty()) << "measuring places nothing";
    ASSERT_TRUE(buffer.init("parts", [&](Carver& c) { parts.lay_out(c, n); }).ok());
    EXPECT_EQ(memory.live_bytes() - before, expected);
    ASSERT_EQ(parts.named.size(), static_cast<size_t>(n));
    for (const Parts::Named& named : parts.named) EXPECT_EQ(named.id, 7);
    for (const uint8_t byte : parts.bytes) EXPECT_EQ(byte, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parts.row) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parts.bytes.data()) % 64, 0u);
  }
}

TEST(HostBufferTest, TakesOtherMemoryAgain) {
  FailingAllocator memory;
  HostBuffer buffer(memory.get());
  std::span<float> row;
  ASSERT_TRUE(buffer.init("row", [&](Carver& c) { c.take(&row, 1000); }).ok());
  memory.reset_peak();
  ASSERT_TRUE(buffer.init("row", [&](Carver& c) { c.take(&row, 16); }).ok());
  EXPECT_EQ(row.size(), 16u);
  EXPECT_EQ(memory.live_bytes(), 64u);
  EXPECT_EQ(memory.peak_bytes(), 4032u) << "the first is freed before the second is allocated";
  memory.fail_in(0);
  const Status status = buffer.init("row", [&](Carver& c) { c.take(&row, 16); });
  EXPECT_EQ(status.code(), MOE_ERR_MEMORY);
  EXPECT_EQ(std::string(status.text()).find("array"), std::string::npos) << status.text();
  EXPECT_NE(std::string(status.text()).find("row"), std::string::npos) << status.text();
}

TEST(HostBufferTest, AnOverflowIsMoreThanAnyMemory) {
  const auto huge = [](Carver& c) {
    std::span<double> row;
    c.take(&row, INT64_MAX);
  };
  uint64_t bytes = 1;
  EXPECT_FALSE(measure(huge, &bytes));
  EXPECT_EQ(bytes, 0u);
  EXPECT_GE(measured(huge), uint64_t{1} << 55);
  EXPECT_GT(measured(huge) + measured(huge), measured(huge));
  EXPECT_EQ(HostBuffer(system_allocator()).init("row", huge).code(), MOE_ERR_MEMORY);
}

TEST(BoundedListTest, KeepsWhatStandsBehindItsEnd) {
  BoundedList<int32_t> list;
  HostBuffer buffer(system_allocator());
  ASSERT_TRUE(buffer.init("list", [&](Carver& c) { list.lay_out(c, 4); }).ok());
  EXPECT_TRUE(list.empty());
  const int32_t values[] = {1, 2, 3};
  list.append(values);
  list.push(4);
  EXPECT_EQ(list.back(), 4);
  list.pop();
  list.resize(1);
  EXPECT_EQ(list.span().size(), 1u);
  EXPECT_EQ(list.room()[2], 3);
  list.resize(3);
  EXPECT_EQ(list[2], 3);
  list.clear();
  EXPECT_EQ(list.begin(), list.end());
}

}  // namespace
}  // namespace moe
