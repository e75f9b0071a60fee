// SPDX-License-Identifier: MIT
// Results have the same bits for every chunk size, batch, thread count and instruction set, and
// from one version to the next.

#include <algorithm>

#include "formats/moe/checksum.h"
#include "tests/run/tiny_run.h"
#include "tests/support/every_isa.h"

namespace moe {
namespace {

constexpr size_t kLength = 100;  // two blocks of keys

class BitsTest : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override { bytes_ = build_tiny_kind(GetParam()); }

  Floats run(int threads, const char* isa, int32_t chunk, size_t call, KvType kv = KvType::kF16) {
    Machine machine(*bytes_, threads, isa);
    EXPECT_TRUE(machine.status().ok()) << machine.status().text();
    if (!machine.status().ok()) return {};
    SessionOptions options;
    options.chunk = chunk;
    options.kv = kv;
    const Box<Session> session = machine.session(options);
    if (!session) return {};
    return eval_all(*session, random_tokens(kLength, machine.vocab_size()), call);
  }

  std::unique_ptr<MemorySink> bytes_;
};

TEST_P(BitsTest, ChunksAndDecodingAgree) {
  for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
    const Floats whole = run(1, nullptr, 0, kLength, kv);
    ASSERT_FALSE(whole.empty());
    EXPECT_EQ(whole, run(1, nullptr, 0, 1, kv)) << "token by token";
    EXPECT_EQ(whole, run(1, nullptr, 7, 33, kv)) << "calls of 33 in chunks of 7";
  }
  const Floats whole = run(1, nullptr, 0, kLength);
  for (const int32_t chunk : {1, 2, 64}) {
    EXPECT_EQ(whole, run(1, nullptr, chunk, kLength)) << "chunk " << chunk;
  }
}

TEST_P(BitsTest, ThreadsAndInstructionSetsAgree) {
  const Floats expected = run(1, nullptr, 0, kLength);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(expected, run(2, nullptr, 0, 5)) << "2 threads";
  EXPECT_EQ(expected, run(3, nullptr, 0, kLength)) << "3 threads";
  for (const CpuKernels* kernels : every_isa()) {
    EXPECT_EQ(expected, run(1, kernels->name, 0, kLength)) << kernels->name;
    EXPECT_EQ(expected, run(1, kernels->name, 0, 1)) << kernels->name << ", decoding";
  }
}

TEST_P(BitsTest, TogetherEqualsAlone) {
  Machine machine(*bytes_, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const size_t vocab = static_cast<size_t>(machine.vocab_size());
  constexpr size_t kSessions = 5;
  constexpr size_t kSteps = 20;
  SessionOptions options;
  options.chunk = 4;  // fewer rows than sessions
  Box<Session> sessions[kSessions];
  Session* together[kSessions];
  Tokens texts[kSessions];
  for (size_t i = 0; i < kSessions; ++i) {
    options.kv = i % 2 == 0 ? KvType::kF16 : KvType::kInt8;
    sessions[i] = machine.session(options);
    ASSERT_TRUE(sessions[i]);
    together[i] = sessions[i].get();
    texts[i] = random_tokens(10 + 17 * i + kSteps, machine.vocab_size(), static_cast<uint32_t>(i));
    ASSERT_TRUE(sessions[i]->eval(span(texts[i], 0, 10 + 17 * i), LogitRows::kNone, nullptr).ok());
  }
  std::vector<Floats> steps;
  for (size_t step = 0; step < kSteps; ++step) {
    Tokens next;
    for (size_t i = 0; i < kSessions; ++i) next.push_back(texts[i][10 + 17 * i + step]);
    steps.emplace_back(kSessions * vocab);
    const Status s =
        sessions_eval({together, kSessions}, next.data(), nullptr, steps.back().data());
    ASSERT_TRUE(s.ok()) << s.text();
  }
  for (size_t i = 0; i < kSessions; ++i) {
    EXPECT_EQ(sessions[i]->position(), static_cast<int32_t>(texts[i].size()));
    options.kv = i % 2 == 0 ? KvType::kF16 : KvType::kInt8;
    const Box<Session> alone = machine.session(options);
    const Floats logits = eval_all(*alone, texts[i]);
    for (size_t step = 0; step < kSteps; ++step) {
      const float* expected = &logits[(10 + 17 * i + step) * vocab];
      ASSERT_EQ(0, std::memcmp(expected, &steps[step][i * vocab], vocab * sizeof(float)))
          << "session " << i << ", step " << step;
    }
  }
}

// Chunks of one text, batched with texts decoded token by token and one evaluated in pieces of
// varying size.
TEST_P(BitsTest, SlicesBesideDecodingEqualAlone) {
  Machine machine(*bytes_, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const size_t vocab = static_cast<size_t>(machine.vocab_size());
  constexpr size_t kSessions = 5;
  const size_t sizes[][kSessions] = {{1, 13, 1, 3, 1},  {1, 14, 1, 1, 1}, {1, 1, 1, 7, 1},
                                     {14, 14, 1, 2, 1}, {2, 12, 1, 1, 1}, {1, 1, 1, 1, 1}};
  SessionOptions options;
  options.chunk = 14;  // some calls take several passes
  Box<Session> sessions[kSessions];
  Session* together[kSessions];
  Tokens texts[kSessions];
  Floats expected[kSessions];
  for (size_t i = 0; i < kSessions; ++i) {
    options.kv = i % 2 == 0 ? KvType::kF16 : KvType::kInt8;
    sessions[i] = machine.session(options);
    ASSERT_TRUE(sessions[i]);
    together[i] = sessions[i].get();
    texts[i] = random_tokens(kLength, machine.vocab_size(), static_cast<uint32_t>(i));
    expected[i] = eval_all(*machine.session(options), texts[i]);
    if (i == 1) continue;
    ASSERT_TRUE(sessions[i]->eval(span(texts[i], 0, 20 * i + 3), LogitRows::kNone, nullptr).ok());
  }
  for (const auto& n : sizes) {
    Tokens next;
    for (size_t i = 0; i < kSessions; ++i) {
      const auto from = texts[i].begin() + sessions[i]->position();
      next.insert(next.end(), from, from + static_cast<std::ptrdiff_t>(n[i]));
    }
    Floats logits(kSessions * vocab);
    const Status s = sessions_eval({together, kSessions}, next.data(), n, logits.data());
    ASSERT_TRUE(s.ok()) << s.text();
    for (size_t i = 0; i < kSessions; ++i) {
      const auto last = static_cast<size_t>(sessions[i]->position()) - 1;
      ASSERT_EQ(0,
                std::memcmp(&expected[i][last * vocab], &logits[i * vocab], vocab * sizeof(float)))
          << "session " << i << ", " << last + 1 << " tokens";
    }
  }
}

TEST_P(BitsTest, RewindingForgets) {
  Machine machine(*bytes_);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Tokens text = random_tokens(90, machine.vocab_size());
  const Box<Session> session = machine.session();
  const Floats expected = eval_all(*session, text);
  ASSERT_TRUE(session->rewind(30).ok());
  (void)eval_all(*session, random_tokens(50, machine.vocab_size(), 9));
  ASSERT_TRUE(session->rewind(30).ok());
  const Floats tail = eval_all(*session, Tokens(text.begin() + 30, text.end()), 7);
  EXPECT_EQ(tail,
            Floats(expected.end() - static_cast<std::ptrdiff_t>(tail.size()), expected.end()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, BitsTest, testing::ValuesIn(all_tiny_kinds()),
                         [](const auto& kind) { return kind.param.name; });

struct Golden {
  const char* format;
  uint64_t hash;
};

constexpr Golden kGoldenLogits[] = {
    {"ternary2", 0x54e9372e9bf961acu},
    {"ternary3", 0x54e9372e9bf961acu},
    {"int8", 0x9d401990375fae8fu},
    {"f32", 0x037333be7c75b1d6u},
    {"bf16", 0xa1a19aabf0a5dd68u},
    {"f16", 0xd8b80ac7f4234062u},
    {"int4", 0x801a85e3d01c2001u},
    {"int4_min", 0xd0e02eb408c2491du},
    {"int4_k", 0xaae9535d661f3617u},
    {"fp4", 0x88a6b0940bf72a68u},
    {"nl4", 0x30ac307b167d24e4u},
    {"nf4", 0xa24e5ec0dff5640cu},
    {"int6_k", 0x86f63236e78307d3u},
    {"int8_group", 0x979626f823a39ab5u},
    {"int2_k", 0x6a2c42081d081831u},
    {"int3_k", 0xa1ab5e28363f9789u},
    {"tcq2", 0xb2963ee8c80ce73eu},
    {"tcq3", 0x03f265f5cd240a8eu},
    {"iq2_xxs", 0x1b41f366f728b368u},
    {"iq2_xs", 0xaf1ff502fd7cb8e0u},
    {"iq2_s", 0x75c5927c2b9cf2abu},
    {"iq3_xxs", 0x667c7cff61eb7771u},
    {"iq3_s", 0xb42830f314946245u},
    {"iq1_s", 0xb45d18d1e68af0f7u},
    {"iq1_m", 0xe4df43f53a3c775eu},
    {"int8_f32", 0x2204a13d3d6bc1cbu},
    {"int8_group_a8_block", 0x1401bc9b3ce224ccu},
    {"int4_a8", 0xc5ecb60d4ac8c6e6u},
    {"ternary2_row", 0xcddf9efd56c87216u},
    {"ternary3_f32", 0x418d4c6e8825ed94u},
};

// The other tests compare results of one version. Whoever changes these bits on purpose says why
// in the commit, and in CHANGELOG.md.
TEST(GoldenLogits, EveryFormat) {
  for (const TinyKind& kind : tiny_formats()) {
    const auto bytes = build_tiny_kind(kind);
    Machine machine(*bytes);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    const Floats logits =
        eval_all(*machine.session(), random_tokens(kLength, machine.vocab_size()));
    const uint64_t hash = xxh64(logits.data(), logits.size() * sizeof(float));
    const auto* golden = std::find_if(std::begin(kGoldenLogits), std::end(kGoldenLogits),
                                      [&](const Golden& g) { return kind.name == g.format; });
    EXPECT_NE(golden, std::end(kGoldenLogits)) << kind.name << ": " << std::hex << hash;
    if (golden == std::end(kGoldenLogits)) continue;
    EXPECT_EQ(golden->hash, hash) << kind.name << ": " << std::hex << hash;
  }
}

}  // namespace
}  // namespace moe
