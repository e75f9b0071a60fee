// SPDX-License-Identifier: MIT
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

TEST(Status, OfALongContextTheBeginningIsLeftOut) {
  const std::string text(300, 't');
  const Status inner = Status::error(MOE_ERR_BUDGET, "%s", text.c_str());
  for (const std::string character : {"x", "é", "€", "😀"}) {
    std::string path;
    while (path.size() < 120) path += character;
    const std::string found = inner.with_context("%s", path.c_str()).text();
    EXPECT_TRUE(found.ends_with(character + ": " + text)) << found;
    EXPECT_TRUE(found.starts_with("..." + character)) << found;
    EXPECT_GT(found.size(), MOE_ERROR_TEXT_BYTES - 6u);
    const std::string fits = path.substr(0, 96);
    EXPECT_EQ(inner.with_context("%s", fits.c_str()).text(), fits + ": " + text);
  }
  // When the text alone fills the buffer, its end is cut and the context is kept.
  const Status full = Status::error(MOE_ERR_IO, "%s", std::string(390, 't').c_str());
  EXPECT_TRUE(
      std::string(full.with_context("%s", "model.moe").text()).starts_with("model.moe: ttt"));
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

TEST(Status, TextIsOneLineOfUtf8WhateverItQuotes) {
  const struct {
    const char* quoted;
    const char* shown;
  } cases[] = {
      {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"a\nb\x1b[31m\x7f", "a?b?[31m?"},
      {"\xff\x80", "??"},
      {"\xe2\x82", "??"},
      {"\xc0\xaf", "??"},
      {"\xed\xa0\x80", "???"},
      {"\xf4\x90\x80\x80", "????"}};
  for (const auto& c : cases) {
    EXPECT_STREQ(Status::error(MOE_ERR_TEXT, "%s", c.quoted).text(), c.shown);
    EXPECT_EQ(Status::error(MOE_ERR_TEXT, "x").with_context("%s", c.quoted).text(),
              std::string(c.shown) + ": x");
  }
  // A precision counts bytes and can cut a character.
  EXPECT_STREQ(Status::error(MOE_ERR_TEXT, "'%.2s'", "a\xc3\xa9").text(), "'a?'");
}

// Counts its live instances.
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
