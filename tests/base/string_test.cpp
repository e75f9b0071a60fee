// SPDX-License-Identifier: MIT
#include "src/base/string.h"

#include <gtest/gtest.h>

#include <string>

#include "src/base/number.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

TEST(String, IsAlwaysTerminated) {
  String text;
  EXPECT_STREQ(text.c_str(), "");
  EXPECT_TRUE(text.empty());
  ASSERT_TRUE(text.append("expert").ok());
  ASSERT_TRUE(text.append("").ok());
  ASSERT_TRUE(text.append(" 12").ok());
  EXPECT_STREQ(text.c_str(), "expert 12");
  EXPECT_EQ(text.size(), 9u);
  ASSERT_TRUE(text.assign("x").ok());
  EXPECT_EQ(text.view(), "x");
  text.clear();
  EXPECT_STREQ(text.c_str(), "");
}

TEST(String, KeepsZeroBytes) {
  String text;
  ASSERT_TRUE(text.assign(std::string_view("a\0b", 3)).ok());
  EXPECT_EQ(text.view(), std::string_view("a\0b", 3));
}

TEST(String, FailedAppendChangesNothing) {
  FailingAllocator memory(1);
  String text(memory.get());
  ASSERT_TRUE(text.assign("short").ok());
  const std::string big(10000, 'x');
  EXPECT_EQ(text.append(big).code(), MOE_ERR_MEMORY);
  EXPECT_STREQ(text.c_str(), "short");
}

TEST(Slice, IsClamped) {
  EXPECT_EQ(slice("ternary", 3), "nary");
  EXPECT_EQ(slice("ternary", 3, 2), "na");
  EXPECT_EQ(slice("ternary", 7), "");
  EXPECT_EQ(slice("ternary", 100, 5), "");
  EXPECT_EQ(slice("ternary", 5, ~size_t{0}), "ry");
}

TEST(Begun, IsTheLongestBeginningAtTheEnd) {
  EXPECT_EQ(begun("text <to", "<tool>"), 3U);
  EXPECT_EQ(begun("text <tool>", "<tool>"), 0U);  // a whole mark has not just begun
  EXPECT_EQ(begun("aa", "aaa"), 2U);
  EXPECT_EQ(begun("ab", "aab"), 0U);
  EXPECT_EQ(begun("<", "<tool>"), 1U);
  EXPECT_EQ(begun("", "<tool>"), 0U);
  EXPECT_EQ(begun("text", ""), 0U);
}

TEST(IsLetter, OfAsciiAlone) {
  for (const char c : {'a', 'z', 'A', 'Z', 'm', 'M'}) EXPECT_TRUE(is_letter(c)) << c;
  for (const char c : {'@', '[', '`', '{', '0', '_', ' ', '\0', '\xe4', '\xff'})
    EXPECT_FALSE(is_letter(c)) << c;
}

TEST(HexValue, OfDigitsAlone) {
  EXPECT_EQ(hex_value('0'), 0);
  EXPECT_EQ(hex_value('9'), 9);
  EXPECT_EQ(hex_value('a'), 10);
  EXPECT_EQ(hex_value('F'), 15);
  for (const char c : {'/', ':', '@', 'G', '`', 'g', '\0', '\xff'})
    EXPECT_EQ(hex_value(c), -1) << c;
}

}  // namespace
}  // namespace moe
