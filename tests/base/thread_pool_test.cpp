// SPDX-License-Identifier: MIT
#include "src/base/thread_pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "src/base/os/machine.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

TEST(ThreadPool, RunsTheBodyOncePerThread) {
  FailingAllocator memory;
  for (const int n : {1, 2, 3, 8}) {
    ThreadPool pool(memory.get());
    ASSERT_TRUE(pool.start(n).ok());
    EXPECT_EQ(pool.n_threads(), n);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(static_cast<size_t>(n), 0);
      pool.parallel([&](int thread, int n_threads) {
        EXPECT_EQ(n_threads, n);
        ++calls[static_cast<size_t>(thread)];
      });
      for (const int c : calls) EXPECT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(4).ok());
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> calls{0};
    pool.parallel([&](int, int) { ++calls; });
    EXPECT_EQ(calls.load(), 4);
  }
}

// A parallel region inside another one, or concurrent with another caller's, runs on the calling
// thread alone.
TEST(ThreadPool, NestedRegionRunsAlone) {
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(3).ok());
  std::atomic<int> inner{0};
  pool.parallel([&](int, int) {
    pool.parallel([&](int thread, int n_threads) {
      EXPECT_EQ(thread, 0);
      EXPECT_EQ(n_threads, 1);
      ++inner;
    });
  });
  EXPECT_EQ(inner.load(), 3);
}

TEST(ThreadPool, ManyCallersShareIt) {
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(3).ok());
  constexpr int64_t kItems = 1000;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&pool] {
      for (int round = 0; round < 100; ++round) {
        std::vector<int> seen(kItems, 0);
        pool.parallel([&](int thread, int n_threads) {
          const Range range = split_range(kItems, thread, n_threads);
          for (int64_t i = range.begin; i < range.end; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (const int s : seen) ASSERT_EQ(s, 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, RefusesBadCounts) {
  ThreadPool pool(system_allocator());
  EXPECT_EQ(pool.start(-1).code(), MOE_ERR_RANGE);
  EXPECT_EQ(pool.start(1025).code(), MOE_ERR_RANGE);
  ASSERT_TRUE(pool.start(2).ok());
  EXPECT_EQ(pool.start(2).code(), MOE_ERR_STATE);
}

TEST(ThreadPool, NoMemoryIsAStatus) {
  const size_t n_tried = try_every_allocation_failure([](const Allocator& memory) {
    ThreadPool pool(memory);
    return pool.start(4).code();
  });
  EXPECT_GT(n_tried, 0u);
}

TEST(ThreadPool, ZeroMeansAllUsableCpus) {
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(0).ok());
  EXPECT_EQ(pool.n_threads(), usable_cpus());
}

TEST(SplitRange, CoversEverythingOnceInWholeGrains) {
  for (const int64_t n : {0, 1, 7, 64, 1000}) {
    for (const int n_threads : {1, 2, 3, 16}) {
      for (const int64_t grain : {1, 4, 48}) {
        int64_t next = 0;
        for (int t = 0; t < n_threads; ++t) {
          const Range range = split_range(n, t, n_threads, grain);
          EXPECT_EQ(range.begin, next);
          EXPECT_LE(range.begin, range.end);
          EXPECT_TRUE(range.begin % grain == 0 || range.begin == n);
          next = range.end;
        }
        EXPECT_EQ(next, n);
      }
    }
  }
}

}  // namespace
}  // namespace moe
