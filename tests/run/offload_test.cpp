// SPDX-License-Identifier: MIT
// Models under a memory cap: refusals, allocations and reads; reads that fail or block; sessions
// that compete for memory.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "src/model/expert_readers.h"
#include "src/run/generate.h"
#include "tests/run/capped_model.h"

namespace moe {
namespace {

class Offload : public CappedTest {};

TEST_F(Offload, TheLeastCapWorksAndOneByteLessIsRefused) {
  for (const int32_t chunk : {0, 5}) {
    const uint64_t least = least_cap(*bytes_, chunks_of(chunk)).bytes;
    CappedModel enough(file_, {least});
    expect_the_answer(*enough.session(chunks_of(chunk)));
    CappedModel less(file_, {least - 1});
    const Status s = less.try_session(chunks_of(chunk)).status();
    EXPECT_EQ(s.code(), MOE_ERR_BUDGET);
    EXPECT_NE(std::strstr(s.text(), std::to_string(least).c_str()), nullptr) << s.text();
  }
}

TEST_F(Offload, WhatIsAllocatedStaysUnderTheCap) {
  for (const bool compress : {false, true}) {
    const auto bytes = build_tiny_kind(ternary(compress));
    WatchedFile file{*bytes, {}};
    const LeastCap least = least_cap(*bytes);
    for (const uint64_t slots : {1, 4, 9, 16, 40}) {
      FailingAllocator memory;
      CappedModel model(file, {least.with(slots)}, memory.get());
      const size_t opened = memory.live_bytes();  // tables, which the C API adds to the account
      const Box<Session> session = model.session();
      const size_t warm = memory.n_allocations();
      const Floats first = eval_all(*session, text_);
      EXPECT_TRUE(session->reset().ok());
      EXPECT_TRUE(eval_all(*session, text_, 1) == first);
      EXPECT_EQ(memory.n_allocations(), warm) << "something was allocated while running";
      EXPECT_LE(memory.peak_bytes() - opened, least.with(slots));
      const uint64_t stacks = kExpertReaders * ExpertReaders::kStackBytes;
      EXPECT_GT(memory.peak_bytes() + stacks, least.with(std::min<uint64_t>(slots, 16)) * 9 / 10);
    }
  }
}

TEST_F(Offload, EveryFailedAllocationIsAStatus) {
  const LeastCap least = least_cap(*bytes_);
  try_every_allocation_failure([&](const Allocator& memory) {
    CappedModel model(file_, {least.with(6)}, memory);
    if (!model.status().ok()) return model.status().code();
    auto session = model.try_session();
    return session.ok() ? eval(**session).code() : session.status().code();
  });
}

TEST_F(Offload, APromptReadsEachExpertOncePerChunk) {
  const Tokens text = random_tokens(150, 64);
  // With chunks of 20 tokens each expert's outputs are kept separately; with 150 they are summed in
  // order.
  for (const auto& [n_readers, chunk] : {std::pair{0, 20}, {4, 20}, {0, 150}, {4, 150}}) {
    const CapOptions how{1, n_readers, 1};
    const uint64_t cap = least_cap(*bytes_, chunks_of(chunk), how).with(4);  // of 16
    std::atomic<size_t> n_reads{0};
    file_.before = [&](uint64_t offset, size_t) {
      n_reads += is_expert(offset) ? 1 : 0;
      return 0;
    };
    CappedModel model(file_, {cap, n_readers});
    const Box<Session> session = model.session(chunks_of(chunk));
    ASSERT_TRUE(session->eval(span(text), LogitRows::kNone, nullptr).ok());
    const ExpertStats stats = session->expert_stats();
    const auto n_chunks = static_cast<size_t>((150 + chunk - 1) / chunk);
    EXPECT_LE(stats.n_uses, n_chunks * experts_.size());
    EXPECT_EQ(n_reads, stats.n_uses - stats.n_hits) << n_readers << " readers, chunk " << chunk;
    const ExpertStats all = model.model().expert_stats();
    EXPECT_EQ(all.n_uses, stats.n_uses);
    uint64_t size = 0;
    for (const auto& [offset, bytes] : experts_) size = bytes;
    EXPECT_EQ(all.read_bytes, n_reads * size);
    expect_the_answer(*session);
    file_.before = nullptr;
  }
}

TEST_F(Offload, TheCApiCountsAllThatItAllocates) {
  FailingAllocator memory;
  const Allocator& a = memory.get();
  const moe_allocator allocator = {.struct_size = sizeof allocator,
                                   .allocate = a.allocate,
                                   .deallocate = a.deallocate,
                                   .user = a.user};
  moe_env_params ep{};
  ep.struct_size = sizeof ep;
  ep.allocator = &allocator;
  ep.threads = 1;
  moe_error error;
  moe_env* env = nullptr;
  ASSERT_EQ(moe_env_create(&ep, &env, &error), MOE_OK) << error.text;
  const size_t opened = memory.live_bytes();
  const moe_reader reader = {.struct_size = sizeof reader,
                             .size = bytes_->size(),
                             .read = WatchedFile::read,
                             .user = &file_};
  moe_model_params mp{};
  mp.struct_size = sizeof mp;
  mp.lazy_experts = 1;
  moe_model* model = nullptr;
  uint64_t least = 0;
  for (const uint64_t more : {0, 5000, 20000, 100000}) {
    mp.memory_bytes = 1000;
    ASSERT_EQ(moe_model_open_reader(env, &reader, &mp, &model, &error), MOE_ERR_BUDGET);
    const char* number = std::strstr(error.text, "too small: ");
    ASSERT_NE(number, nullptr) << error.text;
    least = std::strtoull(number + std::strlen("too small: "), nullptr, 10);
    ASSERT_NE(least, 0u) << error.text;
    // The stacks of reader threads do not come from the allocator; the message gives them to 1000
    // bytes.
    const char* readers = std::strstr(error.text, "expert readers ");
    ASSERT_NE(readers, nullptr) << error.text;
    const double stacks = std::strtod(readers + std::strlen("expert readers "), nullptr) * 1e6;
    mp.memory_bytes = least - 1;
    ASSERT_EQ(moe_model_open_reader(env, &reader, &mp, &model, &error), MOE_ERR_BUDGET);
    mp.memory_bytes = least + more;
    ASSERT_EQ(moe_model_open_reader(env, &reader, &mp, &model, &error), MOE_OK) << error.text;
    moe_session* session = nullptr;
    ASSERT_EQ(moe_session_create(model, nullptr, &session, &error), MOE_OK) << error.text;
    const size_t n = text_.size();
    ASSERT_EQ(moe_session_eval(session, text_.data(), n, MOE_ROWS_NONE, nullptr, &error), MOE_OK);
    const moe_writer nowhere = {.struct_size = sizeof nowhere,
                                .write = [](void*, const void*, size_t) { return true; },
                                .user = nullptr};
    ASSERT_EQ(moe_session_save(session, &nowhere, &error), MOE_OK) << error.text;
    moe_memory_stats stats{};
    stats.struct_size = sizeof stats;
    ASSERT_EQ(moe_session_get_memory_stats(session, &stats, &error), MOE_OK);
    EXPECT_EQ(stats.cap_bytes, mp.memory_bytes);
    EXPECT_NEAR(static_cast<double>(memory.peak_bytes() - opened),
                static_cast<double>(stats.peak_bytes) - stacks, 1500)
        << more << " more";
    EXPECT_LE(stats.peak_bytes, stats.cap_bytes);
    EXPECT_GT(stats.session.n_uses, stats.session.n_hits);
    EXPECT_GT(stats.session.read_bytes, 0u);
    EXPECT_EQ(stats.model.n_uses, stats.session.n_uses);  // the model has only this session
    EXPECT_EQ(stats.model.n_hits, stats.session.n_hits);
    EXPECT_EQ(stats.model.read_bytes, stats.session.read_bytes);
    // Verifying needs memory for an expert beside the resident one.
    ASSERT_EQ(moe_model_verify(model, &error), more == 0 ? MOE_ERR_BUDGET : MOE_OK) << error.text;
    ASSERT_EQ(moe_session_get_memory_stats(session, &stats, &error), MOE_OK);
    EXPECT_LE(memory.peak_bytes() - opened, stats.peak_bytes) << more << " more, verified";
    EXPECT_LE(stats.peak_bytes, stats.cap_bytes);
    moe_session_free(session);
    moe_model_free(model);
  }
  moe_env_free(env);
}

TEST_F(Offload, WithoutACapNothingIsCounted) {
  moe_error error;
  moe_env* env = nullptr;
  ASSERT_EQ(moe_env_create(nullptr, &env, &error), MOE_OK) << error.text;
  const moe_reader reader = {.struct_size = sizeof reader,
                             .size = bytes_->size(),
                             .read = WatchedFile::read,
                             .user = &file_};
  moe_model* model = nullptr;
  ASSERT_EQ(moe_model_open_reader(env, &reader, nullptr, &model, &error), MOE_OK) << error.text;
  moe_session* session = nullptr;
  ASSERT_EQ(moe_session_create(model, nullptr, &session, &error), MOE_OK) << error.text;
  ASSERT_EQ(moe_session_eval(session, text_.data(), text_.size(), MOE_ROWS_NONE, nullptr, &error),
            MOE_OK);
  moe_memory_stats stats;
  std::memset(&stats, 0xFF, sizeof stats);
  stats.struct_size = sizeof stats;
  ASSERT_EQ(moe_session_get_memory_stats(session, &stats, &error), MOE_OK);
  moe_memory_stats zeros{};
  zeros.struct_size = sizeof zeros;
  zeros.reserved = stats.reserved;
  EXPECT_EQ(std::memcmp(&stats, &zeros, sizeof stats), 0);
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
}

TEST_F(Offload, AFailedReadIsOnlyThatExperts) {
  CappedModel model(file_, {least_cap(*bytes_).with(3)});
  const Box<Session> session = model.session();
  ExpertSource& experts = *model.model().layer(0).experts;
  std::atomic<bool> broken{true};
  const uint64_t bad = model.model().file().find(Part::kExperts, 0, 5)->offset;
  file_.before = [&](uint64_t offset, size_t) { return broken && offset == bad ? 5 : 0; };
  const int32_t chosen[] = {4, 5, 6};
  for (int round = 0; round < 2; ++round) {
    experts.prefetch(chosen, 3, nullptr);
    Expert expert;
    for (const int32_t e : {4, 6}) {
      EXPECT_TRUE(experts.acquire(e, {ExpertWait::kRoom}, &expert).ok());
      experts.release(e);
    }
    EXPECT_EQ(experts.acquire(5, {ExpertWait::kRoom}, &expert).code(), MOE_ERR_IO);
    experts.cancel_prefetch(chosen + 1, 1);
  }
  broken = false;
  Expert expert;
  EXPECT_TRUE(experts.acquire(5, {ExpertWait::kRoom}, &expert).ok());
  experts.release(5);
}

TEST_F(Offload, ResidentExpertsAreNotReadAgain) {
  std::atomic<size_t> n_reads{0};
  file_.before = [&](uint64_t offset, size_t) {
    n_reads += is_expert(offset) ? 1 : 0;
    return 0;
  };
  CappedModel model(file_, {least_cap(*bytes_).with(16)});
  const Box<Session> session = model.session();
  expect_the_answer(*session);
  EXPECT_LE(n_reads, experts_.size());
  const size_t once = n_reads;
  const uint64_t hits = session->expert_stats().n_hits;
  expect_the_answer(*session);
  EXPECT_EQ(n_reads, once);
  EXPECT_GT(session->expert_stats().n_hits, hits);
}

// Any read may fail: the call returns its status, and the next call continues.
TEST_F(Offload, EveryReadMayFail) {
  const LeastCap least = least_cap(*bytes_, chunks_of(16));
  for (const int32_t n_readers : {0, 1, 4}) {
    for (const uint64_t slots : {1, 3, 16}) {
      size_t fail_at = 0;
      for (bool failed = true; failed; ++fail_at) {
        ASSERT_LT(fail_at, 200u);
        std::atomic<size_t> n{0};
        std::atomic<bool> armed{false};
        std::atomic<bool> reached{false};
        file_.before = [&](uint64_t, size_t) {
          if (!armed || n++ != fail_at) return 0;
          reached = true;
          return 7;
        };
        CappedModel model(file_, {least.with(slots), n_readers});
        const Box<Session> session = model.session(chunks_of(16));
        armed = true;
        const Status s = eval(*session);
        armed = false;
        failed = reached;
        ASSERT_EQ(s.code(), failed ? MOE_ERR_IO : MOE_OK) << "read " << fail_at << ": " << s.text();
        EXPECT_EQ(failed, std::strstr(s.text(), "experts") != nullptr) << s.text();
        expect_the_answer(*session);
      }
      EXPECT_GT(fail_at, 8u);
    }
  }
}

TEST_F(Offload, DraftsGiveTheSameTokens) {
  GenerateOptions options;
  options.max_tokens = 60;
  options.ignore_eos = true;
  GenerateResult result;
  const auto generated = [&](Session& session, Status* status) {
    *status = generate(session, nullptr, span(text_), options, &result);
    return Tokens(session.tokens().begin(), session.tokens().end());
  };
  Status status;
  Machine machine(*bytes_);
  const Tokens plain = generated(*machine.session(), &status);
  ASSERT_TRUE(status.ok());
  options.max_draft = 8;
  int n_repeated = 0;
  for (const uint64_t slots : {1, 5}) {
    const uint64_t cap = least_cap(*bytes_, chunks_of(16), {1, 0, 1}).with(slots);
    size_t fail_at = ~size_t{0};
    for (size_t n_reads = 1, next = 0; next < n_reads; ++next) {
      std::atomic<size_t> n{0};
      file_.before = [&](uint64_t offset, size_t) {
        return is_expert(offset) && n++ == fail_at ? 5 : 0;
      };
      CappedModel model(file_, {cap, 0});
      const Tokens tokens = generated(*model.session(chunks_of(16)), &status);
      // A pass with a draft that fails is repeated without it.
      if (status.ok()) {
        EXPECT_EQ(tokens, plain);
        n_repeated += fail_at < n ? 1 : 0;
      } else {
        EXPECT_EQ(status.code(), MOE_ERR_IO);
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), plain.begin()));
      }
      if (fail_at == ~size_t{0}) n_reads = n;
      fail_at = next;
    }
  }
  EXPECT_GT(n_repeated, 0);
}

TEST_F(Offload, ADamagedExpertFailsWhenItIsRead) {
  const auto bytes = build_tiny_kind(ternary(true));
  uint64_t at = 0;
  {
    WatchedFile file{*bytes, {}};
    CappedModel model(file, {});
    for (const FileSegment& s : model.model().file().segments()) {
      if (s.part == Part::kExperts && s.layer == 1) at = s.offset + s.stored / 2;
    }
  }
  const LeastCap least = least_cap(*bytes);
  WatchedFile file{*bytes, {}};
  CappedModel model(file, {least.with(4)});
  const Box<Session> session = model.session();
  auto* damaged = const_cast<uint8_t*>(bytes->data()) + at;
  *damaged ^= 1;
  for (int i = 0; i < 2; ++i) {
    const Status s = eval(*session);
    EXPECT_EQ(s.code(), MOE_ERR_CORRUPT);
    EXPECT_NE(std::strstr(s.text(), "segment layers.1.experts.7"), nullptr) << s.text();
    EXPECT_EQ(session->position(), 0);
  }
  *damaged ^= 1;
  EXPECT_TRUE(eval(*session).ok());
}

TEST_F(Offload, ACancelEndsTheWaitForARead) {
  Gate gate;
  CappedModel model(file_, {least_cap(*bytes_).with(2)});
  const Box<Session> session = model.session();
  file_.before = [&](uint64_t offset, size_t) { return is_expert(offset) ? gate.pass() : 0; };
  Status status;
  std::thread caller([&] { status = eval(*session); });
  gate.await_somebody();
  session->cancel();
  caller.join();  // although the read is still blocked
  EXPECT_EQ(status.code(), MOE_ERR_CANCELLED);
  EXPECT_EQ(session->position(), 0);
  gate.open();
  expect_the_answer(*session);
}

TEST_F(Offload, ThreeSessionsShareOneSlot) {
  const SessionOptions options = chunks_of(8);
  for (const int32_t n_readers : {0, 1, 4}) {
    const LeastCap least = least_cap(*bytes_, options, {1, n_readers, 2});
    const uint64_t each = least.session;
    constexpr size_t kSessions = 3;
    CappedModel model(file_, {least.bytes + (kSessions - 1) * each, n_readers, 2});
    Box<Session> sessions[kSessions];
    for (Box<Session>& session : sessions) {
      session = model.session(options);
      ASSERT_TRUE(session);
    }
    EXPECT_EQ(model.memory_stats().arena_bytes, least.slot);
    EXPECT_EQ(model.try_session(options).status().code(), MOE_ERR_BUDGET);
    std::thread threads[kSessions];
    for (size_t i = 0; i < kSessions; ++i) {
      threads[i] = std::thread([&, i] {
        for (int round = 0; round < 3; ++round) {
          expect_the_answer(*sessions[i]);
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

// One session runs while another is cancelled repeatedly; a third is created and freed repeatedly.
class OffloadFilled : public Offload, public testing::WithParamInterface<bool> {};

TEST_P(OffloadFilled, SessionsComeGoAndAreCancelled) {
  const SessionOptions options = chunks_of(8);
  const LeastCap least = least_cap(*bytes_, options, {1, 2, 1});
  CappedModel model(file_, {least.with(40) + 2 * least.session, 2, 1, GetParam()});
  const Box<Session> steady = model.session(options);
  const Box<Session> unlucky = model.session(options);
  std::atomic<bool> done{false};
  std::thread cancelling([&] {
    while (!done) {
      unlucky->cancel();
      std::this_thread::yield();
    }
  });
  std::thread cancelled([&] {
    while (!done) {
      const Status s = eval(*unlucky);
      EXPECT_TRUE(s.ok() || s.code() == MOE_ERR_CANCELLED) << s.text();
      EXPECT_TRUE(unlucky->reset().ok());
    }
  });
  std::thread guests([&] {
    for (uint64_t n = 0; !done; ++n) {
      Reservation other(model.model().budget());  // resizes the arena
      EXPECT_TRUE(model.model().budget().reserve({{&other, n % 3 * 9 * least.slot}}).ok());
      const Box<Session> guest = model.session(options);
      EXPECT_TRUE(eval(*guest).ok());
    }
  });
  for (int i = 0; i < 5; ++i) expect_the_answer(*steady);
  done = true;
  cancelling.join();
  cancelled.join();
  guests.join();
  expect_the_answer(*unlucky);
}

INSTANTIATE_TEST_SUITE_P(Fill, OffloadFilled, testing::Bool());

TEST_F(Offload, ALaterSessionTakesItsMemoryFromTheArena) {
  const SessionOptions options = chunks_of(8);
  const LeastCap least = least_cap(*bytes_, options);
  CappedModel model(file_, {least.with(10) + least.session});
  const Box<Session> first = model.session(options);
  expect_the_answer(*first);
  EXPECT_EQ(model.memory_stats().arena_bytes, 16 * least.slot);
  Box<Session> second = model.session(options);
  const auto stats = model.memory_stats();
  const uint64_t cap = model.model().budget().cap();
  EXPECT_EQ(stats.arena_bytes, 10 * least.slot);
  EXPECT_LE(stats.counted, cap);
  expect_the_answer(*first);
  expect_the_answer(*second);
  second.reset();
  EXPECT_EQ(model.memory_stats().arena_bytes, 16 * least.slot);
  EXPECT_LE(model.memory_stats().peak, cap);
}

// The matrices of a latent cache stay with the model: no session that fails leaves them behind.
TEST_F(Offload, AFailedSessionLeavesTheMemoryAsItWas) {
  const auto bytes = build_tiny_kind(
      two_moe_layers({"latent", [](ModelConfig& c, TinyOptions& o) { set_latent(c, o); }}));
  WatchedFile file{*bytes, {}};
  SessionOptions latent = chunks_of(8);
  latent.kv = KvType::kLatent;
  const LeastCap least = least_cap(*bytes, latent);
  FailingAllocator memory;
  CappedModel model(file, {least.with(6) + least.session}, memory.get());
  const Box<Session> first = model.session(chunks_of(8));
  const auto before = model.memory_stats();
  const size_t live = memory.live_bytes();
  bool made = false;
  for (size_t n = 0; !made; ++n) {
    ASSERT_LT(n, 1000u);
    memory.fail_in(n);
    made = model.try_session(latent).ok();
    if (made) break;
    const auto after = model.memory_stats();
    EXPECT_EQ(after.arena_bytes, before.arena_bytes) << n;
    EXPECT_EQ(after.counted, before.counted) << n;
    EXPECT_EQ(memory.live_bytes(), live) << n;
  }
  memory.fail_in(FailingAllocator::kNever);
}

}  // namespace
}  // namespace moe
