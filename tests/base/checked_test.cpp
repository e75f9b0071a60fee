// SPDX-License-Identifier: MIT
#include "src/base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace moe {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Checked, AddStopsAtTheBorder) {
  uint64_t out = 5;
  EXPECT_TRUE(checked_add<uint64_t>(kMax - 1, 1, &out));
  EXPECT_EQ(out, kMax);
  out = 5;
  EXPECT_FALSE(checked_add<uint64_t>(kMax, 1, &out));
  EXPECT_EQ(out, 5u);
  int32_t small = 5;
  EXPECT_FALSE(checked_add(std::numeric_limits<int32_t>::min(), -1, &small));
  EXPECT_EQ(small, 5);
}

TEST(Checked, MulStopsAtTheBorder) {
  uint64_t out = 5;
  EXPECT_TRUE(checked_mul<uint64_t>(uint64_t{1} << 32, (uint64_t{1} << 32) - 1, &out));
  EXPECT_EQ(out, kMax - (uint64_t{1} << 32) + 1);
  EXPECT_FALSE(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32, &out));
  EXPECT_TRUE(checked_mul<uint64_t>(0, kMax, &out));
  EXPECT_EQ(out, 0u);
}

TEST(Checked, RoundUp) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 48), 96);
}

}  // namespace
}  // namespace moe
