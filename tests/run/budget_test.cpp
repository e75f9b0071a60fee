// SPDX-License-Identifier: MIT
// Sessions under a cap that share its memory: what the plan names is granted, workspaces are lent.

#include <thread>

#include "src/run/saved.h"
#include "tests/run/capped_model.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

class Shared : public CappedTest {
 protected:
  /// The least cap of so many sessions.
  uint64_t least(const SessionOptions& options, int32_t n_sessions) {
    CappedModel model(file_, {1});
    EXPECT_TRUE(model.status().ok());
    return model.account(options, n_sessions).total;
  }
  std::vector<Box<Session>> sessions(CappedModel& model, const SessionOptions& options, int32_t n) {
    std::vector<Box<Session>> made;
    for (int32_t i = 0; i < n; ++i) {
      made.push_back(model.session(options));
      EXPECT_TRUE(made.back()) << i << " of " << n;
    }
    return made;
  }
};

TEST_F(Shared, WhatThePlanNamesIsGranted) {
  for (const int32_t chunk : {0, 8, 100}) {
    for (int32_t n = 1; n <= 16; ++n) {
      FailingAllocator memory;
      const uint64_t cap = least(chunks_of(chunk), n);
      CappedModel model(file_, {cap}, memory.get());
      const size_t opened = memory.live_bytes();
      std::vector<Box<Session>> made = sessions(model, chunks_of(chunk), n);
      EXPECT_EQ(model.try_session(chunks_of(chunk)).status().code(), MOE_ERR_BUDGET) << n;
      EXPECT_EQ(made[0]->chunk(), chunk == 0 ? kLeastChunk : chunk);
      expect_the_answer(*made.back());
      expect_the_answer(*made.front());
      EXPECT_LE(model.memory_stats().peak, cap);
      EXPECT_LE(memory.peak_bytes() - opened, cap);
    }
  }
}

// The chunk of a session alone is larger than what the last one leaves.
TEST_F(Shared, AutomaticChunksFollowTheSessions) {
  uint64_t cap = least(chunks_of(0), 2);
  for (bool larger = false; !larger; cap += 4096) {
    CappedModel model(file_, {cap});
    larger = model.account().chunk > kLeastChunk;
  }
  CappedModel model(file_, {cap});
  std::vector<Box<Session>> made = sessions(model, chunks_of(0), 1);
  const int32_t alone = made[0]->chunk();
  EXPECT_GT(alone, kLeastChunk);
  for (bool granted = true; granted;) {
    auto more = model.try_session();
    granted = more.ok();
    if (granted) made.push_back(std::move(more.value()));
    expect_the_answer(*made[0]);
  }
  EXPECT_EQ(made.back()->chunk(), kLeastChunk);
  EXPECT_EQ(made[0]->chunk(), kLeastChunk);
  made.resize(1);
  EXPECT_EQ(made[0]->chunk(), alone);
  expect_the_answer(*made[0]);
}

TEST_F(Shared, ThreadsMakeThemAtTheSameTime) {
  constexpr int32_t kSessions = 6;
  CappedModel model(file_, {least(chunks_of(0), kSessions), 2, 2});
  std::thread threads[kSessions];
  for (std::thread& t : threads) {
    t = std::thread([&] {
      const Box<Session> session = model.session(chunks_of(0));
      ASSERT_TRUE(session);
      for (int round = 0; round < 3; ++round) expect_the_answer(*session);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(model.memory_stats().peak, model.model().budget().cap());
}

TEST_F(Shared, FurtherPassesTakeMemoryOfTheCacheIfThereIsMuch) {
  for (const bool roomy : {false, true}) {
    Gate gate;
    const uint64_t cap = least(chunks_of(8), 2);
    const LeastCap one = least_cap(*bytes_, chunks_of(8));
    CappedModel model(file_, {cap + (roomy ? 40 * one.slot + 10'000'000 : 0), 4, 1});
    std::vector<Box<Session>> made = sessions(model, chunks_of(8), 2);
    file_.before = [&](uint64_t offset, size_t) { return is_expert(offset) ? gate.pass() : 0; };
    const uint64_t before = model.memory_stats().counted - model.memory_stats().arena_bytes;
    std::atomic<int> n_done{0};
    std::thread first([&] { EXPECT_TRUE(eval(*made[0]).ok()), ++n_done; });
    gate.await_somebody();
    std::thread second([&] { EXPECT_TRUE(eval(*made[1]).ok()), ++n_done; });
    for (int i = 0; i < 1000 && roomy; ++i) {
      if (model.memory_stats().counted - model.memory_stats().arena_bytes > before) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!roomy) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto stats = model.memory_stats();
    EXPECT_EQ(stats.counted - stats.arena_bytes > before, roomy);
    EXPECT_EQ(n_done, 0);
    gate.open();
    first.join();
    second.join();
    EXPECT_LE(model.memory_stats().peak, model.model().budget().cap());
    file_.before = nullptr;
  }
}

TEST_F(Shared, AWaitForAWorkspaceIsCancelled) {
  Gate gate;
  CappedModel model(file_, {least(chunks_of(8), 3), 4, 1});
  std::vector<Box<Session>> made = sessions(model, chunks_of(8), 3);
  file_.before = [&](uint64_t offset, size_t) { return is_expert(offset) ? gate.pass() : 0; };
  std::thread running([&] { EXPECT_TRUE(eval(*made[0]).ok()); });
  gate.await_somebody();
  for (const bool in_group : {false, true}) {
    std::atomic<bool> ended{false};
    std::thread waiting([&] {
      Session* const group[] = {made[1].get(), made[2].get()};
      const Status s =
          in_group ? sessions_eval(group, text_.data(), nullptr, nullptr) : eval(*made[1]);
      EXPECT_EQ(s.code(), MOE_ERR_CANCELLED) << s.text();
      ended = true;
    });
    while (!ended) {
      made[in_group ? 2 : 1]->cancel();  // any session of a group
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    waiting.join();
    EXPECT_EQ(made[1]->position(), 0);
  }
  gate.open();
  running.join();
  expect_the_answer(*made[1]);
}

// A callback of a pass evaluates another session of the same thread: it cannot wait for itself.
TEST_F(Shared, ACallbackOfAPassNeverWaitsForItself) {
  CappedModel model(file_, {least(chunks_of(8), 2)});
  std::vector<Box<Session>> made = sessions(model, chunks_of(8), 2);
  struct Inner {
    Session* other;
    Status status;
    static void call(void* user, const RoutedTokens&, Routing*) {
      auto& self = *static_cast<Inner*>(user);
      const int32_t token = 1;
      self.status = self.other->eval({&token, 1}, LogitRows::kNone, nullptr);
    }
  } inner{made[1].get(), {}};
  ASSERT_TRUE(made[0]->set_routing_hook({Inner::call, &inner}).ok());
  EXPECT_TRUE(eval(*made[0]).ok());
  EXPECT_EQ(inner.status.code(), MOE_ERR_STATE) << inner.status.text();
}

// Sessions of all shapes come, run in groups and alone, and go.
TEST_F(Shared, ManyThreadsMeet) {
  CappedModel model(file_, {least(chunks_of(kMaxChunk), 12), 2, 2, true});
  std::thread threads[4];
  for (size_t t = 0; t < 4; ++t) {
    threads[t] = std::thread([&, t] {
      for (size_t round = 0; round < 6; ++round) {
        const Box<Session> a =
            model.session(chunks_of(t % 2 == 0 ? 0 : 8 * static_cast<int32_t>(round + 1)));
        const Box<Session> b = model.session(chunks_of(0));
        ASSERT_TRUE(a && b);
        expect_the_answer(*a);
        ASSERT_TRUE(set_router(*b, round % 2 == 0 ? "gamma=8" : "").ok());
        Session* const both[] = {a.get(), b.get()};
        ASSERT_TRUE(a->reset().ok());
        const size_t n[] = {20, 20};
        EXPECT_TRUE(sessions_eval(both, text_.data(), n, nullptr).ok());
        ASSERT_TRUE(fork_session(*a, model.model(), system_allocator()).ok());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(model.memory_stats().peak, model.model().budget().cap());
}

// A piece longer than a pass takes several; its tokens are counted once.
TEST_F(Shared, PiecesMayBeLongerThanAPass) {
  CappedModel model(file_, {least(chunks_of(8), 2)});
  std::vector<Box<Session>> made = sessions(model, chunks_of(8), 2);
  ASSERT_TRUE(made[1]->count_routing(true).ok());
  Session* const both[] = {made[0].get(), made[1].get()};
  Tokens tokens = {text_[0]};
  tokens.insert(tokens.end(), text_.begin(), text_.end());
  const size_t n[] = {1, text_.size()};
  const auto vocab = static_cast<size_t>(made[0]->model().config().vocab_size);
  Floats logits(2 * vocab);
  ASSERT_TRUE(sessions_eval(both, tokens.data(), n, logits.data()).ok());
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(vocab),
                         expected_.begin()));
  EXPECT_TRUE(std::equal(logits.begin() + static_cast<ptrdiff_t>(vocab), logits.end(),
                         expected_.end() - static_cast<ptrdiff_t>(vocab)));
  EXPECT_EQ(made[1]->position(), static_cast<int32_t>(text_.size()));
  EXPECT_EQ(made[1]->routing_stats(0)->n_tokens, text_.size());
}

TEST_F(Shared, EveryFailedAllocationIsAStatus) {
  const uint64_t cap = least(chunks_of(0), 2);
  try_every_allocation_failure([&](const Allocator& memory) {
    CappedModel model(file_, {cap}, memory);
    if (!model.status().ok()) return model.status().code();
    auto first = model.try_session();
    if (!first.ok()) return first.status().code();
    auto second = model.try_session();
    if (!second.ok()) return second.status().code();
    const Status status = eval(*second.value());
    if (status.ok()) expect_the_answer(*first.value());
    return status.code();
  });
}

// A slot of these experts is larger than six chunks of 64 tokens.
TEST(LargeExperts, AutomaticChunksLeaveThemASlot) {
  ModelConfig config = tiny_config();
  config.d_model = 1536;
  FfnConfig& ffn = config.layers[1].ffn;
  ffn.d_ff = 4096;
  ffn.moe.n_experts = 1;
  ffn.moe.router.k = 1;
  TinyOptions options;
  options.quick = true;
  const std::unique_ptr<MemorySink> bytes = build_tiny_model(config, options);
  const LeastCap least = least_cap(*bytes);
  {
    WatchedFile file{*bytes, {}};
    CappedModel model(file, {});
    ASSERT_GT(least.slot, 6 * model.account(chunks_of(64)).chunk_bytes);
  }
  for (uint64_t more = 0; more < 2 * least.slot; more += least.slot / 8) {
    WatchedFile file{*bytes, {}};
    CappedModel model(file, {least.bytes + more});
    EXPECT_LE(model.account().total, least.bytes + more);
    const auto session = model.try_session();
    ASSERT_TRUE(session.ok()) << session.status().text();
    if (more == 0) {
      EXPECT_EQ(session.value()->chunk(), kLeastChunk);
    }
  }
}

// The least cap is not above what the spare bytes leave.
TEST(LargeExperts, SpareBytesAreThoseOfACap) {
  for (const int32_t d_ff : {16, 400, 4096}) {
    ModelConfig config = tiny_config();
    for (LayerConfig& layer : config.layers) {
      layer.ffn = config.layers[1].ffn;
      layer.ffn.d_ff = d_ff;
    }
    TinyOptions options;
    options.quick = true;
    const std::unique_ptr<MemorySink> bytes = build_tiny_model(config, options);
    for (const SessionOptions& session : {SessionOptions{}, chunks_of(8)}) {
      WatchedFile file{*bytes, {}};
      CappedModel whole(file, {.cap = 0});
      ASSERT_TRUE(whole.status().ok());
      const uint64_t spare = whole.model().spare_bytes();
      const MemoryAccount account = whole.account(session);
      const uint64_t rest = account.total - spare;
      const LeastCap least = least_cap(*bytes, session);
      EXPECT_EQ(spare > 0, d_ff > 16);
      if (spare > 0) {
        EXPECT_GE(rest, least.bytes) << d_ff;
        EXPECT_LT(spare, line_of(account, "expert weights") - least.slot);
      }
      CappedModel capped(file, {.cap = least.bytes});
      EXPECT_EQ(capped.model().spare_bytes(), 0u);
    }
  }
}

// Rows that another session needs anyway serve automatic chunks.
TEST_F(Shared, AutomaticChunksUseTheRowsOfOthers) {
  const uint64_t cap = least(chunks_of(60), 2);
  CappedModel model(file_, {cap});
  const Box<Session> fixed = model.session(chunks_of(60));
  const Box<Session> automatic = model.session(chunks_of(0));
  ASSERT_TRUE(fixed && automatic);
  EXPECT_EQ(automatic->chunk(), 60);
  expect_the_answer(*automatic);
}

}  // namespace
}  // namespace moe
