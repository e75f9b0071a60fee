// SPDX-License-Identifier: MIT
// Filling the expert cache while nothing else is read.

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/run/capped_model.h"

namespace moe {
namespace {

constexpr int32_t kExperts = 16;  // of both layers

class Fill : public CappedTest {
 protected:
  // A chunk of its own, which otherwise depends on the cap.
  static SessionOptions options() { return chunks_of(8); }
  CapOptions cap_for(uint64_t slots) const { return {least_.with(slots), kExpertReaders, 1, true}; }

  LeastCap least_ = least_cap(*bytes_, options());
};

// Fails if `done` does not become true.
template <class Done>
void wait_until(Done&& done) {
  for (int i = 0; i < 10000 && !done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(done());
}

uint64_t all_expert_bytes(CappedModel& model) {
  uint64_t bytes = 0;
  for (const FileSegment& s : model.model().file().segments()) {
    bytes += s.part == Part::kExperts ? s.raw : 0;
  }
  return bytes;
}

int32_t n_in_memory(CappedModel& model) {
  const auto stats = model.memory_stats();
  return static_cast<int32_t>(stats.expert_bytes * kExperts / all_expert_bytes(model));
}

TEST_F(Fill, WhatFitsIsReadOnceAndNothingElse) {
  for (const int32_t n_readers : {1, kExpertReaders}) {
    std::atomic<int> n_reads{0};
    file_.before = [&](uint64_t offset, size_t) { return n_reads += is_expert(offset), 0; };
    const LeastCap least = least_cap(*bytes_, options(), {1, n_readers, 1});
    CappedModel model(file_, {least.with(10), n_readers, 1, true});
    const Box<Session> session = model.session(options());
    wait_until([&] { return n_in_memory(model) == 10; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(n_reads, 10);
    EXPECT_EQ(model.model().expert_stats().read_bytes, 0u);
    EXPECT_EQ(model.memory_stats().filled_bytes, model.memory_stats().expert_bytes);
    expect_the_answer(*session);
    EXPECT_EQ(model.memory_stats().filled_bytes * kExperts, 10 * all_expert_bytes(model));
    EXPECT_LE(model.memory_stats().peak, least.with(10));
  }
}

TEST_F(Fill, WithRoomForAllEveryUseIsAHit) {
  CappedModel model(file_, cap_for(40));
  const Box<Session> session = model.session(options());
  wait_until([&] { return n_in_memory(model) == kExperts; });
  expect_the_answer(*session);
  EXPECT_GT(session->expert_stats().n_uses, 0u);
  EXPECT_EQ(session->expert_stats().n_hits, session->expert_stats().n_uses);
}

// Experts that no token has chosen yet are evicted before those that were used.
TEST_F(Fill, FilledExpertsAreEvictedFirst) {
  Gate gate;
  std::atomic<bool> first{true};
  file_.before = [&](uint64_t offset, size_t) {
    return is_expert(offset) && first.exchange(false) ? gate.pass() : 0;
  };
  CappedModel model(file_, cap_for(10));
  const Box<Session> session = model.session(options());
  gate.await_somebody();  // a read to fill the cache, which stays alone
  const auto misses_of = [&](int32_t token) {
    const ExpertStats before = session->expert_stats();
    EXPECT_TRUE(session->reset().ok());
    EXPECT_TRUE(session->eval({&token, 1}, LogitRows::kNone, nullptr).ok());
    const ExpertStats after = session->expert_stats();
    return after.n_uses - before.n_uses - (after.n_hits - before.n_hits);
  };
  // The experts of token 0 wait for no read of others; one may be the one being read.
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  EXPECT_GT(misses_of(0), 0u);
  opens.join();
  wait_until([&] { return n_in_memory(model) == 10; });
  uint64_t others = 0;
  for (int32_t token = 1; token < 64 && others == 0; ++token) others = misses_of(token);
  EXPECT_GT(others, 0u);
  EXPECT_EQ(misses_of(0), 0u);
}

TEST_F(Fill, AReadThatFailsIsTriedAgainWhenItIsNeeded) {
  std::atomic<bool> broken{true};
  std::atomic<int> n_failed{0};
  file_.before = [&](uint64_t offset, size_t) {
    if (!broken || !is_expert(offset)) return 0;
    ++n_failed;
    return 5;
  };
  CappedModel model(file_, cap_for(10));
  const Box<Session> session = model.session(options());
  wait_until([&] { return n_failed == kExperts; });
  EXPECT_EQ(eval(*session).code(), MOE_ERR_IO);
  broken = false;
  expect_the_answer(*session);
}

TEST_F(Fill, AModelIsFreedWhileItIsRead) {
  for (int i = 0; i < 20; ++i) {
    file_.before = [&](uint64_t, size_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      return 0;
    };
    CappedModel model(file_, cap_for(40));
    const Box<Session> session = model.session(options());
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
  }
}

TEST_F(Fill, ASecondSessionShrinksTheCacheMeanwhile) {
  for (int i = 0; i < 5; ++i) {
    file_.before = [&](uint64_t, size_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      return 0;
    };
    CappedModel model(file_, {least_.with(6) + least_.session, kExpertReaders, 1, true});
    const Box<Session> first = model.session(options());
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    const Box<Session> second = model.session(options());
    EXPECT_LE(model.memory_stats().peak, least_.with(6) + least_.session);
    expect_the_answer(*second);
    expect_the_answer(*first);
  }
}

TEST_F(Fill, EveryFailedAllocationIsAStatus) {
  try_every_allocation_failure([&](const Allocator& memory) {
    CappedModel model(file_, cap_for(6), memory);
    if (!model.status().ok()) return model.status().code();
    auto session = model.try_session(options());
    return session.ok() ? MOE_OK : session.status().code();
  });
}

}  // namespace
}  // namespace moe
