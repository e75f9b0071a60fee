// SPDX-License-Identifier: MIT
// Sessions that cache latents instead of keys and values (KvType::kLatent): their results, their
// memory, and models that refuse them. saved_test.cpp saves and forks them; families_test.cpp has
// checkpoints.

#include <cmath>
#include <cstring>

#include "tests/run/tiny_run.h"
#include "tests/support/every_isa.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

constexpr size_t kLatentLength =
    100;  // two blocks of keys, and several passes through the scratch memory

TinyKind latent_kind(const char* name,
                     const std::function<void(ModelConfig&, TinyOptions&)>& change = {}) {
  return {name, [change](ModelConfig& c, TinyOptions& o) {
            set_latent(c, o);
            if (change) change(c, o);
          }};
}

TinyKind attention_kind(const char* name, const std::function<void(AttentionConfig&)>& change) {
  return latent_kind(name, [change](ModelConfig& c, TinyOptions&) { each_attention(c, change); });
}

TinyKind format_kind(FormatId format, ScaleKind scale, ActPrecision act) {
  return latent_kind(format_info(format).name, [=](ModelConfig&, TinyOptions& o) {
    o.weights = format;
    o.scale = scale;
    o.act = act;
  });
}

std::vector<TinyKind> latent_kinds() {
  std::vector<TinyKind> all = {
      latent_kind("plain"),
      attention_kind("halves", [](AttentionConfig& a) { a.rope.kind = RopeKind::kHalf; }),
      attention_kind("heads_of_their_own", [](AttentionConfig& a) { a.n_kv_heads = a.n_heads; }),
      attention_kind("one_kv_head", [](AttentionConfig& a) { a.n_kv_heads = 1; }),
      attention_kind("wide",
                     [](AttentionConfig& a) {
                       a.head_dim = 37;
                       a.rope.dims = 6;
                       a.latent = 150;
                     }),
      attention_kind("narrower_than_keys",
                     [](AttentionConfig& a) {
                       a.head_dim = 80;
                       a.rope.dims = 16;
                       a.latent = 16;
                       a.q_latent = 0;
                     }),
      attention_kind("window_sinks_cap", [](AttentionConfig& a) {
        a.window = 19;
        a.sinks = true;
        a.score_cap = 1.5f;
      })};
  for (const WeightFormat& f : kWeightFormats) {
    // Keys of a latent have rows of zeros with a single 1, which blocks of codebooks cannot hold.
    if (!f.table && !f.only_blocks()) all.push_back(format_kind(f.id, f.own_scales(), f.act));
  }
  return all;
}

SessionOptions options_of(KvType kv, int32_t chunk = 0) {
  SessionOptions options;
  options.kv = kv;
  options.chunk = chunk;
  return options;
}

/// |found - expected| / |expected|
double relative(const Floats& found, const Floats& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

class LatentTest : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override { bytes_ = build_tiny_kind(GetParam()); }

  Floats run(int threads, const char* isa, int32_t chunk, size_t call,
             KvType kv = KvType::kLatent) {
    Machine machine(*bytes_, threads, isa);
    EXPECT_TRUE(machine.status().ok()) << machine.status().text();
    if (!machine.status().ok()) return {};
    const Box<Session> session = machine.session(options_of(kv, chunk));
    if (!session) return {};
    return eval_all(*session, random_tokens(kLatentLength, machine.vocab_size()), call);
  }

  std::unique_ptr<MemorySink> bytes_;
};

// The latent, the rotary part and the matrices of keys and values are rounded to f16, with relative
// errors of at most 2^-11: three roundings in each of two layers. A session with an f32 cache
// rounds none of them. Activations are f32 here, because their codes would differ by more.
TEST_P(LatentTest, LogitsAreThoseOfOtherCaches) {
  ModelConfig config = tiny_config();
  config.context_length = kTinyContext;
  TinyOptions options;
  GetParam().change(config, options);
  for (LayerConfig& layer : config.layers) {  // rounding could change a choice of experts
    layer.ffn.kind = FfnKind::kDense;
    layer.ffn.moe = {};
  }
  options.act = ActPrecision::kF32;
  bytes_ = build_tiny_model(config, options);
  const Floats expected = run(1, nullptr, 0, kLatentLength, KvType::kF32);
  const Floats found = run(1, nullptr, 0, kLatentLength);
  EXPECT_LE(relative(found, expected), 6 * 0x1p-11);
  EXPECT_NE(found, expected);
}

TEST_P(LatentTest, ChunksThreadsAndInstructionSetsAgree) {
  const Floats whole = run(1, nullptr, 0, kLatentLength);
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(whole, run(1, nullptr, 0, 1)) << "token by token";
  EXPECT_EQ(whole, run(2, nullptr, 7, 33)) << "calls of 33 in chunks of 7, 2 threads";
  EXPECT_EQ(whole, run(3, nullptr, 64, kLatentLength)) << "chunks of 64, 3 threads";
  for (const CpuKernels* kernels : every_isa()) {
    EXPECT_EQ(whole, run(1, kernels->name, 0, kLatentLength)) << kernels->name;
    EXPECT_EQ(whole, run(2, kernels->name, 0, 1)) << kernels->name << ", decoding";
  }
}

// Batched with sessions of other cache types, which may come first.
TEST_P(LatentTest, TogetherEqualsAlone) {
  Machine machine(*bytes_, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const auto vocab = static_cast<size_t>(machine.vocab_size());
  const KvType orders[][4] = {{KvType::kF16, KvType::kLatent, KvType::kLatent, KvType::kInt8},
                              {KvType::kLatent, KvType::kF32, KvType::kLatent, KvType::kLatent},
                              {KvType::kLatent, KvType::kLatent, KvType::kLatent, KvType::kLatent}};
  const size_t sizes[][4] = {{1, 13, 1, 3}, {40, 1, 1, 1}, {2, 1, 36, 1}, {1, 1, 1, 1}};
  for (const auto& order : orders) {
    Box<Session> sessions[4];
    Session* together[4];
    Tokens texts[4];
    Floats expected[4];
    for (size_t i = 0; i < 4; ++i) {
      sessions[i] = machine.session(options_of(order[i], i == 2 ? 64 : 45));
      ASSERT_TRUE(sessions[i]);
      together[i] = sessions[i].get();
      texts[i] = random_tokens(kLatentLength, machine.vocab_size(), static_cast<uint32_t>(i));
      expected[i] = eval_all(*machine.session(options_of(order[i])), texts[i]);
    }
    for (const auto& n : sizes) {
      Tokens next;
      for (size_t i = 0; i < 4; ++i) {
        const auto from = texts[i].begin() + sessions[i]->position();
        next.insert(next.end(), from, from + static_cast<std::ptrdiff_t>(n[i]));
      }
      Floats logits(4 * vocab);
      const Status s = sessions_eval({together, 4}, next.data(), n, logits.data());
      ASSERT_TRUE(s.ok()) << s.text();
      for (size_t i = 0; i < 4; ++i) {
        const auto last = static_cast<size_t>(sessions[i]->position()) - 1;
        ASSERT_EQ(
            0, std::memcmp(&expected[i][last * vocab], &logits[i * vocab], vocab * sizeof(float)))
            << "session " << i << ", " << last + 1 << " tokens";
      }
    }
  }
}

TEST_P(LatentTest, RewindingForgets) {
  Machine machine(*bytes_);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Tokens text = random_tokens(90, machine.vocab_size());
  const Box<Session> session = machine.session(options_of(KvType::kLatent));
  const Floats expected = eval_all(*session, text);
  ASSERT_TRUE(session->rewind(30).ok());
  (void)eval_all(*session, random_tokens(50, machine.vocab_size(), 9));
  ASSERT_TRUE(session->rewind(30).ok());
  const Floats tail = eval_all(*session, Tokens(text.begin() + 30, text.end()), 7);
  EXPECT_EQ(tail,
            Floats(expected.end() - static_cast<std::ptrdiff_t>(tail.size()), expected.end()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LatentTest, testing::ValuesIn(latent_kinds()),
                         [](const auto& kind) { return kind.param.name; });

MemoryAccount account_of(Machine& machine, KvType kv) {
  MemoryAccount account;
  SessionOptions options = options_of(kv);
  options.context = 128;
  EXPECT_TRUE(account_memory(machine.model(), options, &account).ok());
  return account;
}

constexpr const char* kMatrices = "matrices for the latent cache";

TEST(LatentMemory, TheAccountIsWhatIsHeld) {
  const auto bytes = build_tiny_kind(latent_kind("plain"));
  FailingAllocator memory;
  Machine machine(*bytes, 1, nullptr, memory.get());
  ASSERT_TRUE(machine.status().ok());
  // 128 positions of 12 + 4 and 21 + 4 numbers of two bytes.
  EXPECT_EQ(line_of(account_of(machine, KvType::kLatent), "KV cache"), 128u * 2 * (16 + 25));
  EXPECT_EQ(line_of(account_of(machine, KvType::kF16), kMatrices), 0u);
  const uint64_t matrices = line_of(account_of(machine, KvType::kLatent), kMatrices);
  { const Box<Session> first = machine.session(options_of(KvType::kF16)); }  // loads the weights
  const size_t weights = memory.live_bytes();
  { const Box<Session> first = machine.session(options_of(KvType::kLatent)); }
  const size_t before = memory.live_bytes();
  EXPECT_LE(before - weights, matrices);
  EXPECT_GT(before - weights, matrices / 2);  // the scratch memory for making them is freed
  EXPECT_EQ(line_of(account_of(machine, KvType::kF16), kMatrices), matrices)
      << "the matrices stay in memory";
  const Box<Session> session = machine.session(options_of(KvType::kLatent));
  const size_t held = memory.live_bytes() - before;
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine.model(), options_of(KvType::kLatent), &account).ok());
  EXPECT_LE(held, session->bytes() + account.pass_bytes + sizeof(Session));
  EXPECT_GT(held, (session->bytes() + account.pass_bytes) * 95 / 100);
}

TEST(LatentMemory, ACapCountsTheMatrices) {
  const auto bytes = build_tiny_kind(latent_kind("plain"));
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok());
  SessionOptions options = options_of(KvType::kLatent, 64);
  options.context = 128;
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine.model(), options, &account).ok());
  const auto try_under = [&](uint64_t cap) {
    Machine capped(*bytes, 1, nullptr, system_allocator(), cap);
    return capped.try_session(options).status().code();
  };
  EXPECT_EQ(try_under(account.total - 1), MOE_ERR_BUDGET);
  EXPECT_EQ(try_under(account.total), MOE_OK);
}

TEST(LatentMemory, NothingIsAllocatedPerToken) {
  const auto bytes = build_tiny_kind(latent_kind("plain"));
  FailingAllocator memory;
  Machine machine(*bytes, 2, nullptr, memory.get());
  ASSERT_TRUE(machine.status().ok());
  const Box<Session> session = machine.session(options_of(KvType::kLatent));
  const Tokens text = random_tokens(70, machine.vocab_size());
  (void)eval_all(*session, text, 30);
  const size_t warm = memory.n_allocations();
  ASSERT_TRUE(session->reset().ok());
  (void)eval_all(*session, text, 30);
  EXPECT_EQ(memory.n_allocations(), warm);
}

TEST(LatentMemory, EveryFailedAllocationIsAStatus) {
  const auto bytes = build_tiny_kind(latent_kind("plain"));
  const Tokens text = random_tokens(20, 64);
  const size_t failures = try_every_allocation_failure([&](const Allocator& memory) {
    Machine machine(*bytes, 1, nullptr, memory);
    if (!machine.status().ok()) return machine.status().code();
    auto session = machine.try_session(options_of(KvType::kLatent));
    if (!session.ok()) {
      // The next attempt succeeds.
      EXPECT_TRUE(machine.try_session(options_of(KvType::kLatent)).ok());
      return session.status().code();
    }
    return session.value()->eval(span(text), LogitRows::kNone, nullptr).code();
  });
  EXPECT_GT(failures, 10u);
}

void expect_refused(const MemorySink& bytes, const char* text) {
  Machine machine(bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Status status = machine.try_session(options_of(KvType::kLatent)).status();
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_STREQ(status.text(), text);
  EXPECT_TRUE(machine.session(options_of(KvType::kF16)));
}

TEST(LatentRefusals, ModelsWithoutALatent) {
  expect_refused(*build_tiny_model(tiny_config()),
                 "session: kv latent: layer 0: no multi-head latent attention");
  expect_refused(*build_tiny_model(tiny_encoder()), "session: kv latent: only for decoders");
  expect_refused(*build_tiny_model(tiny_translator()), "session: kv latent: only for decoders");
}

TEST(LatentRefusals, KeysThatTheLatentDoesNotGive) {
  const char* const mixed =
      "session: kv latent: layer 0: keys are not the rotary part followed by projections of "
      "the latent";
  expect_refused(*build_tiny_kind(latent_kind(
                     "mixed", [](ModelConfig&, TinyOptions& o) { o.keys_apart = false; })),
                 mixed);
  expect_refused(*build_tiny_kind(
                     latent_kind("biases", [](ModelConfig&, TinyOptions& o) { o.biases = true; })),
                 mixed);
  const char* const normed =
      "session: kv latent: layer 0: it has qk_norm, qkv_clip or fully rotated keys";
  const std::function<void(AttentionConfig&)> changes[] = {
      [](AttentionConfig& a) { a.qk_norm = QkNorm::kHead; },
      [](AttentionConfig& a) { a.qkv_clip = 1; },
      [](AttentionConfig& a) { a.rope.dims = a.head_dim; }};
  for (const auto& change : changes) {
    expect_refused(*build_tiny_kind(attention_kind("changed", change)), normed);
  }
}

}  // namespace
}  // namespace moe
