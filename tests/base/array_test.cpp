// SPDX-License-Identifier: MIT
#include "src/base/array.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

TEST(Array, GrowsAndKeepsItsElements) {
  FailingAllocator memory;
  Array<int> array(memory.get());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(array.push(i).ok());
  ASSERT_EQ(array.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(array[static_cast<size_t>(i)], i);
  EXPECT_EQ(array.back(), 999);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 64, 0u);
}

TEST(Array, ResizeSetsNewElementsToZero) {
  Array<int> array;
  ASSERT_TRUE(array.resize(3).ok());
  array[1] = 7;
  ASSERT_TRUE(array.resize(1).ok());
  ASSERT_TRUE(array.resize(3).ok());
  EXPECT_EQ(array[1], 0);
  EXPECT_EQ(array[2], 0);
}

TEST(Array, AppendsARun) {
  Array<char> array;
  ASSERT_TRUE(array.append("abc", 3).ok());
  ASSERT_TRUE(array.append(nullptr, 0).ok());
  ASSERT_TRUE(array.append("de", 2).ok());
  EXPECT_EQ(std::string(array.begin(), array.end()), "abcde");
}

TEST(Array, OwnsWhatItHolds) {
  const auto shared = std::make_shared<int>(1);
  {
    FailingAllocator memory;
    Array<std::shared_ptr<int>> array(memory.get());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(array.push(shared).ok());
    EXPECT_EQ(shared.use_count(), 21);
    array.pop();
    EXPECT_EQ(shared.use_count(), 20);
    ASSERT_TRUE(array.resize(4).ok());
    EXPECT_EQ(shared.use_count(), 5);
    Array<std::shared_ptr<int>> other = std::move(array);
    EXPECT_EQ(shared.use_count(), 5);
    EXPECT_TRUE(array.empty());  // NOLINT: a moved-from array is empty and can be used
    array = std::move(other);
    array.clear();
    EXPECT_EQ(shared.use_count(), 1);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(Array, FailedGrowthChangesNothing) {
  FailingAllocator memory(1, true);
  Array<int> array(memory.get());
  Status status;
  int n = 0;
  while (status.ok()) status = array.push(n++);
  EXPECT_EQ(status.code(), MOE_ERR_MEMORY);
  ASSERT_EQ(array.size(), static_cast<size_t>(n - 1));
  for (int i = 0; i + 1 < n; ++i) EXPECT_EQ(array[static_cast<size_t>(i)], i);
  EXPECT_EQ(array.resize(1000).code(), MOE_ERR_MEMORY);
  EXPECT_EQ(array.size(), static_cast<size_t>(n - 1));
}

// Hides a size from the compiler, which would otherwise warn that it is too large.
size_t hidden(size_t n) {
  volatile size_t copy = n;
  return copy;
}

TEST(Array, ImpossibleSizesAreRefused) {
  const size_t most = hidden(~size_t{0});
  Array<double> array;
  EXPECT_EQ(array.reserve(most).code(), MOE_ERR_MEMORY);
  EXPECT_EQ(array.reserve(most / sizeof(double) + 1).code(), MOE_ERR_MEMORY);
  EXPECT_EQ(array.resize(most / 2).code(), MOE_ERR_MEMORY);
  ASSERT_TRUE(array.push(1).ok());
  const double one = 1;
  EXPECT_EQ(array.append(&one, most).code(), MOE_ERR_MEMORY);
  EXPECT_EQ(array.size(), 1u);
}

TEST(Box, FreesItsObjectOnce) {
  FailingAllocator memory;
  const auto shared = std::make_shared<int>(1);
  auto made = make_box<std::shared_ptr<int>>(memory.get(), shared);
  ASSERT_TRUE(made.ok());
  Box<std::shared_ptr<int>> box = std::move(made.value());
  EXPECT_TRUE(box);
  EXPECT_EQ(shared.use_count(), 2);
  Box<std::shared_ptr<int>> other = std::move(box);
  EXPECT_EQ(shared.use_count(), 2);
  other.reset();
  EXPECT_FALSE(other);
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(Box, FailureIsAStatus) {
  FailingAllocator memory(0);
  EXPECT_EQ(make_box<int>(memory.get(), 1).status().code(), MOE_ERR_MEMORY);
}

}  // namespace
}  // namespace moe
