#include "src/base/status.h"

#include <gtest/gtest.h>

#include <string>

namespace moe {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), MOE_OK);
  EXPECT_STREQ(status.text(), "");
}

TEST(Status, ErrorFormatsItsText) {
  const Status status = Status::error(MOE_ERR_SHAPE, "tensor %s: expected %d", "up", 3);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), MOE_ERR_SHAPE);
  EXPECT_STREQ(status.text(), "tensor up: expected 3");
}

TEST(Status, CopiesAreIndependent) {
  const Status first = Status::error(MOE_ERR_IO, "disk");
  Status second = first;
  second = Status();
  EXPECT_EQ(first.code(), MOE_ERR_IO);
  EXPECT_STREQ(first.text(), "disk");
  EXPECT_TRUE(second.ok());
}

TEST(Status, ContextGoesInFront) {
  const Status status = Status::error(MOE_ERR_FORMAT, "bad magic").with_context("file %s", "a.moe");
  EXPECT_EQ(status.code(), MOE_ERR_FORMAT);
  EXPECT_STREQ(status.text(), "file a.moe: bad magic");
}

TEST(Status, TooLongTextIsCutAtACharacter) {
  constexpr size_t kRoom = MOE_ERROR_TEXT_BYTES - 1;
  for (const std::string character : {"x", "é", "€", "😀"}) {
    for (size_t shift = 0; shift < 4; ++shift) {
      std::string text(shift, '.');
      while (text.size() < 2 * kRoom) text += character;
      const Status status = Status::error(MOE_ERR_TEXT, "%s", text.c_str());
      const std::string kept = status.text();
      EXPECT_EQ((kept.size() - shift) % character.size(), 0u) << character << " " << shift;
      EXPECT_GT(kept.size() + character.size(), kRoom);
      EXPECT_EQ(text.compare(0, kept.size(), kept), 0);
    }
  }
}

// A value that counts how many of it are alive.
struct Counted {
  static inline int alive = 0;
  int number;
  explicit Counted(int n) : number(n) { ++alive; }
  Counted(Counted&& other) noexcept : number(other.number) { ++alive; }
  Counted(const Counted&) = delete;
  ~Counted() { --alive; }
};

Result<Counted> half(int n) {
  if (n % 2 != 0) return Status::error(MOE_ERR_RANGE, "%d is odd", n);
  return Counted(n / 2);
}

Status quarter(int n, int* out) {
  MOE_ASSIGN(const Counted once, half(n));
  MOE_ASSIGN(const Counted twice, half(once.number));
  *out = twice.number;
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  {
    Result<Counted> good = half(6);
    ASSERT_TRUE(good.ok());
    EXPECT_EQ(good->number, 3);
    Result<Counted> moved = std::move(good);
    EXPECT_EQ(moved->number, 3);
    const Result<Counted> bad = half(7);
    ASSERT_FALSE(bad.ok());
    EXPECT_STREQ(bad.status().text(), "7 is odd");
  }
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Result, AssignReturnsTheFirstError) {
  int out = -1;
  EXPECT_TRUE(quarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_STREQ(quarter(6, &out).text(), "3 is odd");
  EXPECT_STREQ(quarter(5, &out).text(), "5 is odd");
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Counted::alive, 0);
}

}  // namespace
}  // namespace moe
