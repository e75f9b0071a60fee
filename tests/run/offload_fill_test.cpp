// Filling the expert cache while nothing else is read.

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "tests/run/capped_model.h"

namespace moe {
namespace {

constexpr int32_t kExperts = 16;  // of both layers

class Fill : public testing::Test {
 protected:
  Fill()
      : bytes_(build_tiny_kind(two_moe_layers(
            {"ternary", [](ModelConfig&, TinyOptions& o) { o.weights = FormatId::kTernary2; }}))),
        file_{*bytes_, {}},
        least_(least_cap(*bytes_, options())) {
    Machine machine(*bytes_);
    text_ = random_tokens(40, machine.vocab_size());
    expected_ = eval_all(*machine.session(), text_);
    for (const FileSegment& s : machine.model().file().segments()) {
      if (s.part == Part::kExperts) experts_.insert(s.offset);
    }
    EXPECT_EQ(experts_.size(), static_cast<size_t>(kExperts));
  }
  static SessionOptions options() {
    SessionOptions options;
    options.chunk = 8;  // otherwise it depends on the cap
    return options;
  }
  bool is_expert(uint64_t offset) const { return experts_.count(offset) != 0; }
  CapOptions cap_for(uint64_t slots) const { return {least_.with(slots), kExpertReaders, 1, true}; }
  void expect_the_answer(Session& session) {
    ASSERT_TRUE(session.reset().ok());
    EXPECT_TRUE(eval_all(session, text_) == expected_);
  }

  std::unique_ptr<MemorySink> bytes_;
  WatchedFile file_;
  LeastCap least_;
  Tokens text_;
  Floats expected_;
  std::set<uint64_t> experts_;  // offsets in the file
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
  const MemoryStats stats = model.model().memory_stats();
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
    EXPECT_EQ(model.model().memory_stats().filled_bytes, model.model().memory_stats().expert_bytes);
    expect_the_answer(*session);
    EXPECT_EQ(model.model().memory_stats().filled_bytes * kExperts, 10 * all_expert_bytes(model));
    EXPECT_LE(model.model().memory_stats().peak_bytes, least.with(10));
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

// What nothing has chosen yet is evicted before what was used.
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
  std::atomic<int> n_failed{0};
  file_.before = [&](uint64_t offset, size_t) { return is_expert(offset) ? (++n_failed, 5) : 0; };
  CappedModel model(file_, cap_for(10));
  const Box<Session> session = model.session(options());
  wait_until([&] { return n_failed == kExperts; });
  EXPECT_EQ(session->eval(span(text_), LogitRows::kNone, nullptr).code(), MOE_ERR_IO);
  file_.before = nullptr;
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
    SessionOptions second_options = options();
    second_options.other_sessions_bytes = first->bytes();
    const Box<Session> second = model.session(second_options);
    EXPECT_LE(model.model().memory_stats().peak_bytes, least_.with(6) + least_.session);
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
