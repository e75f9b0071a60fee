// SPDX-License-Identifier: MIT
// Parts made on any number of threads are used in order, also when some fail or are not
// wanted.
#include "src/convert/weights/in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/allocator.h"

namespace moe {
namespace {

constexpr int64_t kNone = -1;

// Runs parts of which some fail, and keeps what was called.
struct OrderedParts {
  int64_t make_fails = kNone, use_fails = kNone, tell_fails = kNone;
  int64_t last_wanted = kNone;
  bool alone = false;
  std::vector<int64_t> used, told;
  std::string thrown;

  void with(int n_threads, int64_t n = 40) {
    ThreadPool pool(system_allocator());
    ASSERT_TRUE(pool.start(n_threads).ok());
    used.clear();
    told.clear();
    thrown.clear();
    std::vector<int64_t> slots(slots_of(pool), kNone);
    std::vector<std::atomic<int>> busy(static_cast<size_t>(pool.n_threads()));
    std::atomic<int> using_parts{0};
    InOrder work;
    work.n = n;
    work.alone = alone;
    work.make = [&](int worker, int64_t part, size_t slot) {
      EXPECT_EQ(busy[static_cast<size_t>(worker)]++, 0);
      EXPECT_TRUE(!alone || worker == 0);
      EXPECT_LT(slot, alone || n_threads == 1 ? 2 : slots.size());
      slots[slot] = part;
      busy[static_cast<size_t>(worker)]--;
      // Those behind the first fail too.
      if (make_fails != kNone && part >= make_fails) {
        throw std::runtime_error("make " + std::to_string(part));
      }
    };
    work.use = [&](int64_t part, size_t slot) {
      EXPECT_EQ(using_parts++, 0);
      EXPECT_EQ(slots[slot], part);
      using_parts--;
      if (part == use_fails) throw std::runtime_error("use " + std::to_string(part));
      used.push_back(part);
      return part != last_wanted;
    };
    work.tell = [&](int64_t part) {
      if (part == tell_fails) throw std::runtime_error("tell " + std::to_string(part));
      told.push_back(part);
    };
    try {
      run_in_order(pool, work);
    } catch (const std::runtime_error& e) {
      thrown = e.what();
    }
  }
};

std::vector<int64_t> first_parts(int64_t n) {
  std::vector<int64_t> parts;
  for (int64_t part = 0; part < n; ++part) parts.push_back(part);
  return parts;
}

// The parts before `part` were used and told, and then this was thrown.
void expect_ended_at(const OrderedParts& parts, int64_t part, const char* thrower) {
  EXPECT_EQ(parts.thrown, thrower + (" " + std::to_string(part)));
  EXPECT_EQ(parts.used, first_parts(part));
  EXPECT_EQ(parts.told, first_parts(part));
}

class InOrderTest : public testing::TestWithParam<int> {};

TEST_P(InOrderTest, UsesAndTellsEachPartInOrder) {
  for (const bool alone : {false, true}) {
    OrderedParts parts;
    parts.alone = alone;
    for (const int64_t n : {0, 1, 2, 3, 7, 8, 9, 16, 17, 40, 101}) {
      parts.with(GetParam(), n);
      EXPECT_EQ(parts.used, first_parts(n)) << n;
      EXPECT_EQ(parts.told, first_parts(n)) << n;
      EXPECT_EQ(parts.thrown, "");
    }
  }
}

TEST_P(InOrderTest, PartsBeforeOneThatCannotBeMadeAreUsed) {
  for (int64_t part = 0; part < 40; ++part) {
    OrderedParts parts;
    parts.make_fails = part;
    parts.with(GetParam());
    expect_ended_at(parts, part, "make");
  }
}

TEST_P(InOrderTest, TheFirstFailureIsThrown) {
  for (int64_t part = 0; part < 40; ++part) {
    OrderedParts parts;
    parts.use_fails = part;
    parts.make_fails = part + 1;
    parts.with(GetParam());
    expect_ended_at(parts, part, "use");
    parts.use_fails = kNone;
    parts.tell_fails = part;
    parts.with(GetParam());
    EXPECT_EQ(parts.thrown, "tell " + std::to_string(part));
    EXPECT_EQ(parts.told, first_parts(part));
  }
}

TEST_P(InOrderTest, FailuresBehindTheLastWantedPartDoNotMatter) {
  for (int64_t part = 0; part < 40; ++part) {
    OrderedParts parts;
    parts.last_wanted = part;
    parts.make_fails = part + 1;
    parts.with(GetParam());
    EXPECT_EQ(parts.thrown, "");
    EXPECT_EQ(parts.used, first_parts(part + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, InOrderTest, testing::Values(1, 2, 3, 16));

}  // namespace
}  // namespace moe
