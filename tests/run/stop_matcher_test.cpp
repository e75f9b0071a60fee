// SPDX-License-Identifier: MIT
#include "src/run/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "src/run/generate.h"

namespace moe {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
};

Status init(StopMatcher& matcher, const std::vector<std::string>& stops) {
  std::vector<std::string_view> views(stops.begin(), stops.end());
  return matcher.init({views.data(), views.size()});
}

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(system_allocator());
  const Status s = init(matcher, stops);
  EXPECT_TRUE(s.ok()) << s.text();
  Outcome outcome{"", false};
  for (const std::string& piece : pieces) {
    std::string_view ready;
    EXPECT_TRUE(matcher.push(piece, &ready).ok());
    outcome.text += ready;
  }
  outcome.stopped = matcher.stopped();
  outcome.text += matcher.finish();
  return outcome;
}

TEST(StopMatcherTest, FindsAStopAcrossPieces) {
  const Outcome o = run({"</s>"}, {"one <", "/", "s> two"});
  EXPECT_TRUE(o.stopped);
  EXPECT_EQ(o.text, "one ");
}

TEST(StopMatcherTest, ReleasesWhatDidNotBecomeAStop) {
  StopMatcher matcher(system_allocator());
  ASSERT_TRUE(init(matcher, {"abcd"}).ok());
  std::string_view ready;
  ASSERT_TRUE(matcher.push("xabc", &ready).ok());
  EXPECT_EQ(ready, "x");
  ASSERT_TRUE(matcher.push("e", &ready).ok());
  EXPECT_EQ(ready, "abce");
  ASSERT_TRUE(matcher.push("ab", &ready).ok());
  EXPECT_EQ(ready, "");
  EXPECT_EQ(matcher.finish(), "ab");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, SaysWhichStopWasFound) {
  const auto found = [](const std::vector<std::string>& stops, const char* text) {
    StopMatcher matcher(system_allocator());
    EXPECT_TRUE(init(matcher, stops).ok());
    std::string_view ready;
    EXPECT_TRUE(matcher.push(text, &ready).ok());
    return matcher.found();
  };
  EXPECT_EQ(found({"one", "two"}, "three"), -1);
  EXPECT_EQ(found({"one", "two"}, "one two"), 0);
  EXPECT_EQ(found({"one", "two"}, "two one"), 1);
  EXPECT_EQ(found({"x", "b", "ab"}, "xab"), 0);  // the first to be complete
  EXPECT_EQ(found({"c", "b", "ab"}, "ab"), 2);   // the longest of those
  EXPECT_EQ(found({"ab", "ab"}, "ab"), 0);
}

TEST(StopMatcherTest, NothingIsWithheldWhereAPartEnds) {
  StopMatcher matcher(system_allocator());
  ASSERT_TRUE(init(matcher, {"final answer"}).ok());
  std::string_view ready;
  ASSERT_TRUE(matcher.push("fin", &ready).ok());
  EXPECT_EQ(ready, "");
  ASSERT_TRUE(matcher.push("al", &ready, true).ok());
  EXPECT_EQ(ready, "final");
  ASSERT_TRUE(matcher.push(" answer", &ready).ok());
  EXPECT_EQ(ready, " answer");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, OverlappingStartsAreFound) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b", "c"}).text, "a");
  EXPECT_EQ(run({"abab!"}, {"abab", "ab!"}).text, "ab");
}

TEST(StopMatcherTest, TheStopThatIsCompleteFirstWins) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}).text, "xa");
  EXPECT_EQ(run({"bc", "abc"}, {"xabcd"}).text, "x");  // both complete at once: the longer one
}

TEST(StopMatcherTest, WithoutStopsTextPassesThrough) {
  const Outcome o = run({}, {"a", "", "bc"});
  EXPECT_FALSE(o.stopped);
  EXPECT_EQ(o.text, "abc");
}

TEST(StopMatcherTest, RefusesBadStops) {
  StopMatcher matcher(system_allocator());
  EXPECT_EQ(init(matcher, {""}).code(), MOE_ERR_ARGUMENT);
  EXPECT_EQ(init(matcher, {"\x80"}).code(), MOE_ERR_TEXT);
  EXPECT_EQ(init(matcher, {std::string(kMaxStopBytes + 1, 'a')}).code(), MOE_ERR_RANGE);
  EXPECT_EQ(init(matcher, std::vector<std::string>(kMaxStops + 1, "a")).code(), MOE_ERR_RANGE);
}

// Compared with a search of the whole text, on texts of two letters, in which many stops overlap.
TEST(StopMatcherTest, EqualsAPlainSearch) {
  std::mt19937 rng(7);
  const auto text_of = [&rng](size_t n) {
    std::string s;
    for (size_t i = 0; i < n; ++i) s += static_cast<char>('a' + rng() % 2);
    return s;
  };
  int n_stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + rng() % 3; ++i) stops.push_back(text_of(1 + rng() % 7));
    std::vector<std::string> pieces;
    std::string whole;
    for (size_t i = 0; i < 1 + rng() % 8; ++i) {
      pieces.push_back(text_of(rng() % 5));
      whole += pieces.back();
    }
    size_t best_end = std::string::npos;
    size_t best_begin = 0;
    for (const std::string& stop : stops) {
      const size_t at = whole.find(stop);
      if (at == std::string::npos) continue;
      const size_t end = at + stop.size();
      if (best_end == std::string::npos || end < best_end || (end == best_end && at < best_begin)) {
        best_end = end;
        best_begin = at;
      }
    }
    const bool expect_stop = best_end != std::string::npos;
    const Outcome o = run(stops, pieces);
    ASSERT_EQ(o.stopped, expect_stop) << whole;
    ASSERT_EQ(o.text, expect_stop ? whole.substr(0, best_begin) : whole);
    n_stopped += expect_stop ? 1 : 0;
  }
  EXPECT_GT(n_stopped, 500);
  EXPECT_LT(n_stopped, 1999);
}

}  // namespace
}  // namespace moe
