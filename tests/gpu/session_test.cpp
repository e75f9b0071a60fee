// SPDX-License-Identifier: MIT
// Whole models on the CUDA device compared with the CPU.

#include <cmath>

#include "tests/gpu/gpu_machine.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

// Attention sums in another order than on the CPU. Where an activation is close to the boundary
// between two codes, this changes the code by one, which is 1/127 of one input of a product.
constexpr double kBound = 2e-3;

class GpuSession : public testing::TestWithParam<TinyKind> {
 protected:
  void SetUp() override { bytes_ = build_tiny_kind(GetParam()); }
  std::unique_ptr<MemorySink> bytes_;
};

TEST_P(GpuSession, GivesTheLogitsOfTheCpu) {
  Machine cpu(*bytes_);
  GpuMachine gpu(*bytes_);
  const ModelConfig& config = cpu.model().config();
  bool refused = config.layer_input.width > 0 || config.rotation.block > 0;
  for (const LayerConfig& layer : config.layers) {
    refused = refused || extra_of(layer) != nullptr;
  }
  if (refused) {  // before anything is computed
    EXPECT_EQ(gpu.status().code(), MOE_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(gpu.status().text()).find("only on the CPU"), std::string::npos);
    return;
  }
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Tokens tokens = random_tokens(75, cpu.vocab_size());
  const Tokens prompt(tokens.begin(), tokens.begin() + 70);
  for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
    SessionOptions options;
    options.kv = kv;
    options.chunk = 40;  // a long chunk and a short one
    const Box<Session> expected = cpu.session(options);
    const Box<Session> found = gpu.session(options);
    ASSERT_TRUE(found);
    expect_close(eval_all(*found, prompt), eval_all(*expected, prompt), kBound);
    // five steps: the first is launched directly, the second is captured, the others are replayed
    expect_close(decode(*found, tokens, 70), decode(*expected, tokens, 70), kBound);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuSession, testing::ValuesIn(all_tiny_kinds()),
                         [](const auto& kind) { return kind.param.name; });

/// Heads of a width that has kernels for decoding over split keys and for prompts; the tiny models'
/// heads have neither. Queries share keys, and every head is normed.
TinyKind wide_heads(int32_t head_dim, int32_t n_heads, int32_t n_kv_heads) {
  return {"heads_of_" + std::to_string(head_dim), [=](ModelConfig& c, TinyOptions&) {
            each_attention(c, [=](AttentionConfig& a) {
              a.head_dim = head_dim;
              a.n_heads = n_heads;
              a.n_kv_heads = n_kv_heads;
              a.rope.dims = head_dim;
              a.qk_norm = QkNorm::kHead;
            });
          }};
}

INSTANTIATE_TEST_SUITE_P(WideHeads, GpuSession,
                         testing::Values(wide_heads(32, 4, 2), wide_heads(128, 6, 2)),
                         [](const auto& kind) { return kind.param.name; });

TEST(GpuEncoder, GivesWhatTheCpuGives) {
  for (const HeadKind kind : {HeadKind::kTokens, HeadKind::kClasses, HeadKind::kTags}) {
    ModelConfig config = tiny_encoder();
    config.tie_embeddings = kind == HeadKind::kTokens;
    if (!config.tie_embeddings) {
      config.head = {kind, 3, kind == HeadKind::kClasses, false, Activation::kTanh};
    }
    config.layers[1].attention.window = kind == HeadKind::kTags ? 21 : 0;
    TinyOptions options;
    options.biases = true;
    const auto bytes = build_tiny_model(config, options);
    Machine cpu(*bytes);
    GpuMachine gpu(*bytes);
    ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
    const Tokens tokens = random_tokens(63, 64);
    const size_t rows = kind == HeadKind::kClasses ? 1 : tokens.size();
    const auto run = [&](Session& session) {
      Floats all(tokens.size() * 32 + rows * static_cast<size_t>(config.n_outputs()));
      Encoding out;
      out.hidden = all.data();
      out.outputs = all.data() + tokens.size() * 32;
      const Status status = session.encode(span(tokens), out);
      EXPECT_TRUE(status.ok()) << status.text();
      return all;
    };
    expect_close(run(*gpu.session()), run(*cpu.session()), 1e-5);
  }
}

TEST(GpuSteps, ReplayedStepsAreTheSameSteps) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Tokens tokens = random_tokens(80, gpu.vocab_size());
  const Box<Session> replayed = gpu.session();
  const Box<Session> counted = gpu.session();
  ASSERT_TRUE(counted->count_routing(true).ok());  // such steps are not captured
  EXPECT_EQ(decode(*replayed, tokens), decode(*counted, tokens));
  // Each router has its own captured step, and earlier ones are kept.
  for (const char* router : {"topk:1", "threshold:0.8", "topk:1", ""}) {
    ASSERT_TRUE(replayed->reset().ok());
    ASSERT_TRUE(counted->reset().ok());
    ASSERT_TRUE(set_router(*replayed, router).ok());
    ASSERT_TRUE(set_router(*counted, router).ok());
    EXPECT_EQ(decode(*replayed, Tokens(tokens.begin(), tokens.begin() + 5)),
              decode(*counted, Tokens(tokens.begin(), tokens.begin() + 5)))
        << router;
  }
}

TEST(GpuSteps, SessionsTogetherGiveWhatEachGivesAlone) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const auto vocab = static_cast<size_t>(gpu.vocab_size());
  constexpr size_t kSessions = 5;
  Box<Session> alone[kSessions];
  Box<Session> member[kSessions];
  Session* together[kSessions];
  Tokens texts[kSessions];
  for (size_t i = 0; i < kSessions; ++i) {
    SessionOptions options;
    options.kv = i % 2 == 0 ? KvType::kF16 : KvType::kInt8;
    alone[i] = gpu.session(options);
    member[i] = gpu.session(options);
    together[i] = member[i].get();
    texts[i] = random_tokens(20 + 11 * i, gpu.vocab_size(), static_cast<uint32_t>(i));
    const auto prompt = span(texts[i], 0, texts[i].size() - 5);
    ASSERT_TRUE(alone[i]->eval(prompt, LogitRows::kNone, nullptr).ok());
    ASSERT_TRUE(member[i]->eval(prompt, LogitRows::kNone, nullptr).ok());
  }
  for (size_t step = 0; step < 5; ++step) {
    Tokens next;
    for (const Tokens& t : texts) next.push_back(t[t.size() - 5 + step]);
    Floats logits(kSessions * vocab);
    const Status s = sessions_eval({together, kSessions}, next.data(), nullptr, logits.data());
    ASSERT_TRUE(s.ok()) << s.text();
    for (size_t i = 0; i < kSessions; ++i) {
      Floats expected(vocab);
      ASSERT_TRUE(alone[i]->eval(span(next, i, 1), LogitRows::kLast, expected.data()).ok());
      const Floats found(&logits[i * vocab], &logits[i * vocab] + vocab);
      SCOPED_TRACE(testing::Message() << "session " << i << ", step " << step);
      expect_close(found, expected, 1e-5);
    }
  }
}

TEST(GpuStatistics, CountWhatTheCpuCounts) {
  const auto bytes = build_tiny_kind(plain_kind());
  Machine cpu(*bytes);
  GpuMachine gpu(*bytes);
  const Tokens tokens = random_tokens(30, cpu.vocab_size());
  const Box<Session> expected = cpu.session();
  const Box<Session> found = gpu.session();
  ASSERT_TRUE(expected->count_routing(true).ok());
  ASSERT_TRUE(found->count_routing(true).ok());
  eval_all(*expected, tokens);
  eval_all(*found, tokens);
  for (int32_t l = 0; l < cpu.model().config().n_layers(); ++l) {
    const RoutingStats& e = *expected->routing_stats(l);
    const RoutingStats& f = *found->routing_stats(l);
    EXPECT_EQ(f.n_tokens, e.n_tokens);
    EXPECT_EQ(f.n_dropped, e.n_dropped);
    EXPECT_GT(e.n_positive, 0u);  // dense layers are counted too
    EXPECT_EQ(f.n_activations, e.n_activations);
    EXPECT_NEAR(static_cast<double>(f.n_positive), static_cast<double>(e.n_positive),
                0.01 * static_cast<double>(e.n_positive) + 2);
  }
}

// A capacity makes the chunk as large as the context, which replaces the session's buffers on the
// GPU.
TEST(GpuCapacity, TheChunkGrowsUnderASession) {
  const auto bytes = build_tiny_kind(
      {"long", [](ModelConfig& c, TinyOptions&) { c.context_length = kDefaultChunk + 4; }});
  Machine cpu(*bytes);
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> expected = cpu.session();
  const Box<Session> found = gpu.session();
  const Tokens tokens = random_tokens(kDefaultChunk + 2, gpu.vocab_size());
  EXPECT_EQ(set_router(*found, "resident=0.1").code(), MOE_ERR_UNSUPPORTED);
  for (Session* session : {expected.get(), found.get()}) {
    // A captured step and kept logits refer to the buffers that are replaced.
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(session->eval(span(tokens, i, 1), LogitRows::kLast, Floats(64).data()).ok());
    }
    ASSERT_TRUE(set_router(*session, "gamma=1").ok());
    EXPECT_EQ(session->chunk(), kDefaultChunk + 4);
    TokenLogprob out{};
    ASSERT_TRUE(session->sample({}, &out, nullptr, 0).ok());
    ASSERT_TRUE(session->reset().ok());
  }
  expect_close(eval_all(*found, tokens), eval_all(*expected, tokens), kBound);
}

TEST(GpuNonFinite, ALogitThatIsNoNumberIsAnError) {
  const auto bytes = build_tiny_kind({"overflow", [](ModelConfig& c, TinyOptions& o) {
                                        c.norm = NormKind::kLayer;
                                        c.tie_embeddings = false;
                                        c.layers[1] = c.layers[0];
                                        o.biases = true;
                                        o.huge_token = 5;
                                      }});
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> session = gpu.session();
  const Tokens good = {1, 2};
  const Tokens bad = {3, 5};
  Floats logits(2 * 64, 7.0f);
  ASSERT_TRUE(session->eval(span(good), LogitRows::kNone, nullptr).ok());
  for (const LogitRows rows : {LogitRows::kLast, LogitRows::kAll}) {
    EXPECT_EQ(session->eval(span(bad), rows, logits.data()).code(), MOE_ERR_NON_FINITE);
    EXPECT_EQ(session->position(), 2);
    EXPECT_EQ(logits[64], 7.0f);
  }
  EXPECT_TRUE(session->eval(span(good), LogitRows::kLast, logits.data()).ok());
}

}  // namespace
}  // namespace moe
