// SPDX-License-Identifier: MIT
// Results have the same bits under every memory cap, with any number of reader threads and in any
// order of reads.

#include "tests/run/capped_model.h"

namespace moe {
namespace {

constexpr size_t kLength = 90;

// The kinds that decide which experts are used together, and what one consists of.
std::vector<TinyKind> kinds_of_experts() {
  std::vector<TinyKind> kinds = tiny_routers();
  for (const TinyKind& kind : tiny_layers()) {
    for (const char* name : {"mh_moe", "x_moe", "shared_gated", "sub_norms_sinks"}) {
      if (kind.name == name) kinds.push_back(kind);
    }
  }
  kinds.push_back(router_kind("capacity", [](RouterConfig& r) { r.gamma = 1; }));
  kinds.push_back({"ternary_zstd", [](ModelConfig&, TinyOptions& o) {
                     o.weights = FormatId::kTernary2;
                     o.compress = true;
                   }});
  for (TinyKind& kind : kinds) kind = two_moe_layers(kind);
  return kinds;
}

std::vector<TinyKind> all_layers_and_formats() {
  std::vector<TinyKind> kinds;
  for (const auto& list : {tiny_layers(), tiny_formats()}) {
    for (const TinyKind& kind : list) kinds.push_back(two_moe_layers(kind));
  }
  return kinds;
}

class OffloadBits : public testing::TestWithParam<TinyKind> {
 protected:
  OffloadBits() : bytes_(build_tiny_kind(GetParam())), file_{*bytes_, {}} {
    Machine machine(*bytes_);
    EXPECT_TRUE(machine.status().ok()) << machine.status().text();
    text_ = random_tokens(kLength, machine.vocab_size());
    expected_ = logits(*machine.session());
  }

  // The logits of a prompt of one or several chunks, then of tokens one by one.
  Floats logits(Session& session) {
    const Tokens prompt(text_.begin(), text_.begin() + 60);
    Floats all = eval_all(session, prompt);
    const Floats more = eval_all(session, Tokens(text_.begin() + 60, text_.end()), 1);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  SessionOptions options(int32_t chunk) const {
    SessionOptions o;
    o.chunk = GetParam().name == "capacity" ? 0 : chunk;
    return o;
  }
  void expect_the_bits(const CapOptions& cap, int32_t chunk) {
    FailingAllocator memory;
    CappedModel model(file_, cap, memory.get());
    ASSERT_TRUE(model.status().ok()) << model.status().text();
    const size_t opened = memory.live_bytes();  // tables, which the C API adds to the account
    const Box<Session> session = model.session(options(chunk));
    ASSERT_TRUE(session);
    EXPECT_TRUE(logits(*session) == expected_)
        << "cap " << cap.cap << ", " << cap.n_readers << " readers, " << cap.threads
        << " threads, chunks of " << chunk;
    const ExpertStats stats = session->expert_stats();
    EXPECT_GT(stats.n_uses, 0u);
    EXPECT_LT(stats.n_hits, stats.n_uses);
    EXPECT_LE(memory.peak_bytes() - opened, cap.cap);
    const auto held = model.memory_stats();
    EXPECT_LE(held.expert_bytes, held.arena_bytes);
  }

  std::unique_ptr<MemorySink> bytes_;
  WatchedFile file_;
  Tokens text_;
  Floats expected_;
};

TEST_P(OffloadBits, DoNotDependOnTheCap) {
  for (const int32_t chunk : {0, 7}) {
    const LeastCap least = least_cap(*bytes_, options(chunk));
    for (const uint64_t slots : {1, 2, 3, 5, 11, 16}) {
      expect_the_bits({least.with(slots), kExpertReaders, 1}, chunk);
    }
  }
}

TEST_P(OffloadBits, DoNotDependOnReadersAndThreads) {
  for (const int32_t n_readers : {0, 1, 8}) {
    for (const int threads : {1, 3}) {
      const LeastCap least = least_cap(*bytes_, options(0), {1, n_readers, threads});
      for (const uint64_t slots : {1, 4})
        expect_the_bits({least.with(slots), n_readers, threads}, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OffloadBits, testing::ValuesIn(kinds_of_experts()),
                         [](const auto& kind) { return kind.param.name; });

class OffloadEveryKind : public OffloadBits {};

TEST_P(OffloadEveryKind, HasTheSameBits) {
  const LeastCap least = least_cap(*bytes_, options(7), {1, kExpertReaders, 3});
  for (const uint64_t slots : {1, 5}) expect_the_bits({least.with(slots), kExpertReaders, 3}, 7);
}

INSTANTIATE_TEST_SUITE_P(Kinds, OffloadEveryKind, testing::ValuesIn(all_layers_and_formats()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace moe
