// SPDX-License-Identifier: MIT
// The same text as the C library's printf.
#include "src/base/format.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>

namespace moe {
namespace {

template <class... Args>
void expect_same(const char* form, Args... args) {
  char ours[1200];
  char theirs[1200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n = format(ours, sizeof ours, form, args...);
  const int expected = std::snprintf(theirs, sizeof theirs, form, args...);
#pragma GCC diagnostic pop
  EXPECT_EQ(n, expected) << form;
  EXPECT_STREQ(ours, theirs) << form;
}

TEST(Format, Text) {
  expect_same("%s|%.3s|%.*s|%5s|%-5s|%%|%c", "ab", "abcdef", 2, "xyz", "a", "b", 'c');
  expect_same("%.0s|%.60s", "abc", "");
  expect_same("plain");
}

TEST(Format, WholeNumbers) {
  for (const long long v : {0ll, 1ll, -1ll, 7ll, -42ll, 1000000000ll, LLONG_MAX, LLONG_MIN}) {
    const int i = static_cast<int>(v);
    const auto u = static_cast<unsigned long long>(v);
    expect_same("%d|%i|%u|%x|%X|%04X|%02d|%5d|%-6d|%06d|%.3d", i, i, static_cast<unsigned>(i),
                static_cast<unsigned>(i), static_cast<unsigned>(i), static_cast<unsigned>(i), i, i,
                i, i, i);
    expect_same("%lld|%llu|%016llx|%ld|%lu", v, u, u, static_cast<long>(v),
                static_cast<unsigned long>(u));
    expect_same("%zu|%" PRIu64 "|%" PRId64 "|%hhd|%hd", static_cast<size_t>(u), uint64_t{u},
                int64_t{v}, i, i);
  }
  expect_same("%p", static_cast<void*>(const_cast<char*>("x")));
  expect_same("%.0d|", 0);
}

TEST(Format, RealNumbers) {
  using Limits = std::numeric_limits<double>;
  for (const double v : {0.0,
                         -0.0,
                         1.0,
                         -1.5,
                         0.5,
                         2.5,
                         0.1,
                         99.9999995,
                         999999.5,
                         1234567.0,
                         1e-5,
                         0.0001,
                         9.9999995e-5,
                         1e15,
                         1e22,
                         123456789012.0,
                         Limits::max(),
                         Limits::min(),
                         Limits::denorm_min(),
                         Limits::infinity(),
                         -Limits::infinity(),
                         0.125,
                         1e300,
                         4.35,
                         2.675,
                         5e-324}) {
    expect_same("%g|%f|%e|%.3f|%.0f|%.1f|%.10g|%.17g|%.0e|%.2e", v, v, v, v, v, v, v, v, v, v);
    expect_same("%10.3f|%-12.2f|%012.4f|%.0g|%.1g", v, v, v, v, v);
  }
  EXPECT_EQ((format(nullptr, 0, "%g", 0.25)), 4);
}

TEST(Format, RandomRealNumbers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double any = 0;
    std::memcpy(&any, &bits, sizeof any);
    const double near = static_cast<double>(static_cast<int64_t>(bits)) * 1e-12;
    for (const double v : {any, near, std::floor(near) / 8}) {
      if (v == v) expect_same("%g|%.3f|%.17e|%.5g", v, v, v, v);
    }
  }
}

TEST(Format, CutsOffWhatDoesNotFit) {
  char text[5] = "....";
  EXPECT_EQ(format(text, sizeof text, "%d", 123456), 6);
  EXPECT_STREQ(text, "1234");
  EXPECT_EQ(format(text, 1, "abc"), 3);
  EXPECT_STREQ(text, "");
}

}  // namespace
}  // namespace moe
