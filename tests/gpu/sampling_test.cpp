// SPDX-License-Identifier: MIT
// Tokens sampled from logits that stay on the GPU are the same as from logits copied to the host.

#include <fstream>
#include <iterator>
#include <string>

#include "src/run/generate.h"
#include "src/run/session_state.h"
#include "tests/gpu/gpu_machine.h"

namespace moe {
namespace {

struct Made {
  Tokens tokens;
  Floats logprobs;
  Tokens top;
  Floats top_logprobs;
  bool operator==(const Made& o) const {
    return tokens == o.tokens && logprobs == o.logprobs && top == o.top &&
           top_logprobs == o.top_logprobs;
  }
};

Made make(Session& session, const Tokens& prompt, const SamplingConfig& sampling, int32_t n,
          int32_t n_top = 0, int32_t max_draft = 0) {
  Made made;
  GenerateOptions options;
  options.max_tokens = n;
  options.ignore_eos = true;
  options.sampling = sampling;
  options.n_top = n_top;
  options.max_draft = max_draft;
  options.user = &made;
  options.callback = [](void* user, const Piece& piece) {
    Made& m = *static_cast<Made*>(user);
    m.tokens.push_back(piece.token);
    m.logprobs.push_back(piece.logprob);
    for (const TokenLogprob& t : piece.top) {
      m.top.push_back(t.token);
      m.top_logprobs.push_back(t.logprob);
    }
    return true;
  };
  GenerateResult result;
  EXPECT_TRUE(session.reset().ok());
  const Status status = generate(session, nullptr, span(prompt), options, &result);
  EXPECT_TRUE(status.ok()) << status.text();
  return made;
}

const LogitBias kBias[] = {{3, 2.0f}, {5, -__builtin_inff()}};

std::vector<SamplingConfig> samplings() {
  SamplingConfig c;
  c.seed = 11;
  std::vector<SamplingConfig> all = {c};
  const auto add = [&](float temperature, int32_t top_k, float top_p, float min_p) {
    c.temperature = temperature;
    c.top_k = top_k;
    c.top_p = top_p;
    c.min_p = min_p;
    all.push_back(c);
  };
  add(0.8f, 0, 1, 0);
  add(1, 0, 0.9f, 0);
  add(1.3f, 10, 0.95f, 0);
  add(1, 0, 1, 0.1f);
  c.repetition_penalty = 1.3f;
  add(0, 0, 1, 0);
  c.bias = {kBias, 2};
  add(1, 0, 0.9f, 0);
  return all;
}

void bring_rows_over(Session& session) { SessionCall::state_of(session).logits.stay = false; }

TEST(GpuSampling, SameTokensWithTheRowOnEitherSide) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> kept = gpu.session();
  const Box<Session> brought = gpu.session();
  bring_rows_over(*brought);
  const Tokens prompt = random_tokens(9, gpu.vocab_size());
  for (const SamplingConfig& sampling : samplings()) {
    SCOPED_TRACE(testing::Message() << sampling.temperature << ' ' << sampling.top_p);
    for (const int32_t n_top : {0, 7}) {
      const Made found = make(*kept, prompt, sampling, 12, n_top);
      ASSERT_EQ(found.tokens.size(), 12u);
      EXPECT_EQ(found, make(*brought, prompt, sampling, 12, n_top));
      EXPECT_EQ(found, make(*kept, prompt, sampling, 12, n_top, 4));
    }
  }
}

// After a step, logits can be read and tokens sampled in any order.
TEST(GpuSampling, LogitsCanBeReadAfterAStep) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> kept = gpu.session();
  const Box<Session> brought = gpu.session();
  bring_rows_over(*brought);
  const auto vocab = static_cast<size_t>(gpu.vocab_size());
  const Tokens tokens = random_tokens(30, gpu.vocab_size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    Floats found(vocab);
    Floats expected(vocab);
    const LogitRows rows = i % 3 == 0 ? LogitRows::kNone : LogitRows::kLast;
    ASSERT_TRUE(kept->eval(span(tokens, i, 1), rows, found.data()).ok());
    ASSERT_TRUE(brought->eval(span(tokens, i, 1), rows, expected.data()).ok());
    EXPECT_EQ(found, expected) << "token " << i;
    for (const SamplingConfig& sampling : samplings()) {
      TokenLogprob a{};
      TokenLogprob b{};
      ASSERT_TRUE(kept->sample(sampling, &a, nullptr, 0).ok());
      ASSERT_TRUE(brought->sample(sampling, &b, nullptr, 0).ok());
      EXPECT_EQ(a.token, b.token) << "token " << i;
      EXPECT_EQ(a.logprob, b.logprob) << "token " << i;
    }
    if (i % 7 == 6) {
      ASSERT_TRUE(kept->rewind(static_cast<int32_t>(i)).ok());
      ASSERT_TRUE(brought->rewind(static_cast<int32_t>(i)).ok());
      ASSERT_TRUE(kept->eval(span(tokens, i, 1), LogitRows::kNone, nullptr).ok());
      ASSERT_TRUE(brought->eval(span(tokens, i, 1), LogitRows::kNone, nullptr).ok());
    }
  }
}

/// Generates `steps` tokens in each of n sessions that step together, each with its own sampling
/// configuration. Logits are read after every second step.
void step_together(GpuMachine& gpu, size_t n, int steps, bool keep, Tokens* tokens,
                   Floats* numbers) {
  const std::vector<SamplingConfig> all = samplings();
  const auto vocab = static_cast<size_t>(gpu.vocab_size());
  SessionOptions options;
  options.context = 64;
  options.chunk = static_cast<int32_t>(n);
  std::vector<Box<Session>> owners;
  std::vector<Session*> sessions;
  for (size_t i = 0; i < n; ++i) {
    owners.push_back(gpu.session(options));
    sessions.push_back(owners.back().get());
    if (!keep) bring_rows_over(*owners.back());
  }
  Tokens next = random_tokens(n, gpu.vocab_size());
  for (int step = 0; step < steps; ++step) {
    Floats logits(n * vocab);
    const bool asks = step % 2 == 1;
    const Status status =
        sessions_eval({sessions.data(), n}, next.data(), nullptr, asks ? logits.data() : nullptr);
    ASSERT_TRUE(status.ok()) << status.text();
    numbers->insert(numbers->end(), logits.begin(), logits.end());
    for (size_t i = 0; i < n; ++i) {
      TokenLogprob sampled{};
      ASSERT_TRUE(sessions[i]->sample(all[i % all.size()], &sampled, nullptr, 0).ok());
      tokens->push_back(sampled.token);
      numbers->push_back(sampled.logprob);
      next[i] = sampled.token;
    }
  }
}

TEST(GpuSampling, SessionsTogether) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const struct {
    size_t sessions;
    int steps;
  } cases[] = {{7, 5}, {34, 2}};  // 34: more rows of logits than are kept at once
  for (const auto& c : cases) {
    Tokens found, expected;
    Floats found_numbers, expected_numbers;
    step_together(gpu, c.sessions, c.steps, true, &found, &found_numbers);
    step_together(gpu, c.sessions, c.steps, false, &expected, &expected_numbers);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(found_numbers, expected_numbers);
  }
}

#if defined(MOE_CUDA_EMULATOR)
// A replayed step copies its inputs, launches one graph and waits once; no logits are copied back.
TEST(GpuSampling, GreedyStepsAreOneLaunchAndOneWait) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> session = gpu.session();
  const Tokens prompt = random_tokens(5, gpu.vocab_size());
  for (const float top_p : {1.0f, 0.9f}) {
    std::vector<int> calls;
    GenerateOptions options;
    options.max_tokens = 12;
    options.ignore_eos = true;
    options.sampling.top_p = top_p;
    options.sampling.temperature = top_p < 1 ? 0.5f : 0;
    options.user = &calls;
    options.callback = [](void* user, const Piece&) {
      static_cast<std::vector<int>*>(user)->push_back(emulator::calls_made());
      return true;
    };
    GenerateResult result;
    ASSERT_TRUE(session->reset().ok());
    ASSERT_TRUE(generate(*session, nullptr, span(prompt), options, &result).ok());
    ASSERT_EQ(calls.size(), 12u);
    // A call to choose the GPU, two copies of inputs, the launch and the wait.
    for (size_t i = 4; i < calls.size(); ++i) EXPECT_EQ(calls[i] - calls[i - 1], 5) << i;
  }
}
#endif

#if !defined(MOE_CUDA_EMULATOR)
constexpr int32_t kLongText = 64;
#elif !defined(MOE_SANITIZE_ADDRESS)
constexpr int32_t kLongText = 24;
#else
constexpr int32_t kLongText = 8;  // the emulator needs almost a second per token
#endif

TEST(GpuSampling, TheShippedModelWritesWhatItWritesOnTheCpu) {
  std::ifstream file("examples/models/stories.moe", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) GTEST_SKIP() << "examples/models/stories.moe is not here";
  MemorySink bytes;
  ASSERT_TRUE(bytes.write(0, text.data(), text.size()).ok());
  Machine cpu(bytes);
  GpuMachine gpu(bytes);
  ASSERT_TRUE(cpu.status().ok()) << cpu.status().text();
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  SessionOptions options;
  options.context = 80;
  options.chunk = 16;
  const Box<Session> expected = cpu.session(options);
  const Box<Session> kept = gpu.session(options);
  const Box<Session> brought = gpu.session(options);
  bring_rows_over(*brought);
  const Tokens prompt = {703, 866, 260, 508};  // Once upon a time
  const std::vector<SamplingConfig> all = samplings();
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(testing::Message() << all[i].temperature << ' ' << all[i].top_p);
    const int32_t n = i == 0 ? kLongText : kLongText / 2;
    const Made found = make(*kept, prompt, all[i], n);
    EXPECT_EQ(found.tokens.size(), static_cast<size_t>(n));
    EXPECT_EQ(found, make(*brought, prompt, all[i], n));
#if !defined(MOE_CUDA_EMULATOR)
    if (i > 0) continue;  // a draw may depend on the last bits of the logits
#endif
    EXPECT_EQ(found.tokens, make(*expected, prompt, all[i], n).tokens);
  }
}

}  // namespace
}  // namespace moe
