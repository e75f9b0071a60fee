// SPDX-License-Identifier: MIT
// Sessions whose routers have a capacity: a call must be one chunk, so the chunk grows unless the
// caller chose it.

#include <cstring>

#include "src/run/perplexity.h"
#include "src/run/saved.h"
#include "tests/run/tiny_run.h"
#include "tests/support/failing_allocator.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

constexpr int32_t kContext = 600;  // more than the default chunk

std::unique_ptr<MemorySink> model_with(float gamma) {
  return build_tiny_kind({"capacity", [&](ModelConfig& c, TinyOptions&) {
                            c.context_length = 2 * kMaxChunk;
                            each_moe(c, [&](FfnConfig& f) { f.moe.router.gamma = gamma; });
                          }});
}

SessionOptions options(int32_t chunk = 0) {
  SessionOptions o;
  o.context = kContext;
  o.chunk = chunk;
  return o;
}

Floats last_logits(Session& session, const Tokens& text) {
  Floats logits(static_cast<size_t>(session.model().config().vocab_size));
  const Status s = session.eval(span(text), LogitRows::kLast, logits.data());
  EXPECT_TRUE(s.ok()) << s.text();
  return logits;
}

Floats log_probabilities_after(Session& session) {
  std::vector<TokenLogprob> top(kMaxTopLogprobs);
  TokenLogprob sampled;
  const Status s = session.sample({}, &sampled, top.data(), top.size());
  EXPECT_TRUE(s.ok()) << s.text();
  Floats out;
  for (const TokenLogprob& t : top) out.push_back(t.logprob);
  return out;
}

class CapacityTest : public testing::Test {
 protected:
  CapacityTest() : bytes_(model_with(0)), machine_(*bytes_, 1, nullptr, memory_.get()) {}
  void SetUp() override { ASSERT_TRUE(machine_.status().ok()) << machine_.status().text(); }

  FailingAllocator memory_;
  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  const Tokens text_ = random_tokens(kContext, 64);
};

// Logits computed again from the last token alone would differ, since other tokens would not fill
// the experts' capacity.
TEST_F(CapacityTest, LogitsAreKeptByAForkAndAnEncoding) {
  const Box<Session> session = machine_.session(options());
  ASSERT_TRUE(set_router(*session, "gamma=0.2,min_capacity=1").ok());
  ASSERT_TRUE(session->eval(span(text_).first(500), LogitRows::kNone, nullptr).ok());
  const Floats of_text = log_probabilities_after(*session);
  auto made = fork_session(*session, machine_.model(), system_allocator());
  ASSERT_TRUE(made.ok()) << made.status().text();
  EXPECT_EQ(log_probabilities_after(*made.value()), of_text);
  Floats pooled(static_cast<size_t>(session->model().config().d_model));
  Encoding encoding;
  encoding.pooled = pooled.data();
  ASSERT_TRUE(session->encode(span(text_).first(20), encoding).ok());
  EXPECT_EQ(log_probabilities_after(*session), of_text);
  // After other tokens the logits are computed again, and do differ.
  const auto position = session->position();
  ASSERT_TRUE(session->eval(span(text_).first(1), LogitRows::kNone, nullptr).ok());
  ASSERT_TRUE(session->rewind(position).ok());
  EXPECT_NE(log_probabilities_after(*session), of_text);
}

TEST_F(CapacityTest, AWholeTextIsOneChunk) {
  const Box<Session> session = machine_.session(options());
  ASSERT_EQ(session->chunk(), kDefaultChunk);
  ASSERT_TRUE(set_router(*session, "gamma=1").ok());
  EXPECT_EQ(session->chunk(), kContext);
  const Box<Session> chosen = machine_.session(options(kContext));
  ASSERT_TRUE(set_router(*chosen, "gamma=1").ok());
  const Floats logits = last_logits(*session, text_);
  EXPECT_EQ(logits, last_logits(*chosen, text_));
  // A capacity for all tokens has no effect.
  ASSERT_TRUE(session->reset().ok());
  ASSERT_TRUE(set_router(*session, "gamma=100").ok());
  const Floats all = last_logits(*session, text_);
  EXPECT_NE(all, logits);
  EXPECT_EQ(all, last_logits(*machine_.session(options()), text_));
}

TEST_F(CapacityTest, PerplexityWorksOverWindows) {
  const Box<Session> session = machine_.session(options());
  ASSERT_TRUE(set_router(*session, "topk:2,gamma=1").ok());
  Perplexity p;
  const Status s = measure_perplexity(*session, span(random_tokens(2000, 64)), {}, &p);
  ASSERT_TRUE(s.ok()) << s.text();
  EXPECT_GT(p.n_scored, 1900u);
}

TEST_F(CapacityTest, AChosenChunkStaysAndTheMessageNamesIt) {
  const Box<Session> session = machine_.session(options(16));
  ASSERT_TRUE(set_router(*session, "gamma=1").ok());
  EXPECT_EQ(session->chunk(), 16);
  const Status s = session->eval(span(text_, 0, 17), LogitRows::kNone, nullptr);
  EXPECT_EQ(s.code(), MOE_ERR_TOO_LONG);
  EXPECT_NE(std::strstr(s.text(), "at most 16 tokens, found 17"), nullptr) << s.text();
  EXPECT_NE(std::strstr(s.text(), "--chunk"), nullptr) << s.text();
}

// Each session of a pass has the full capacity.
TEST_F(CapacityTest, PiecesOfOnePassAreRoutedForThemselves) {
  const auto bytes = model_with(0.5f);
  Machine machine(*bytes, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  constexpr size_t kSessions = 3;
  const size_t n[kSessions] = {1, 60, 25};
  Box<Session> sessions[kSessions];
  Session* together[kSessions];
  Floats expected;
  size_t done = 0;
  for (size_t i = 0; i < kSessions; ++i) {
    sessions[i] = machine.session(options());
    together[i] = sessions[i].get();
    const Floats alone =
        last_logits(*machine.session(options()), Tokens(&text_[done], &text_[done + n[i]]));
    expected.insert(expected.end(), alone.begin(), alone.end());
    done += n[i];
  }
  Floats logits(expected.size());
  const Status s = sessions_eval({together, kSessions}, text_.data(), n, logits.data());
  ASSERT_TRUE(s.ok()) << s.text();
  EXPECT_EQ(logits, expected);
}

TEST_F(CapacityTest, TheFileMayAskForIt) {
  const auto bytes = model_with(1);
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  EXPECT_EQ(machine.session(options())->chunk(), kContext);
  SessionOptions longer;
  longer.context = 2 * kMaxChunk;
  EXPECT_EQ(machine.session(longer)->chunk(), kMaxChunk);
}

TEST_F(CapacityTest, TheAccountFollows) {
  const Box<Session> session = machine_.session(options());
  const auto pass_bytes = [&](int32_t chunk) {
    MemoryAccount account;
    EXPECT_TRUE(account_memory(machine_.model(), options(chunk), &account).ok());
    return account.pass_bytes;
  };
  const size_t held = memory_.live_bytes();
  const uint64_t more = pass_bytes(kContext) - pass_bytes(kDefaultChunk);
  ASSERT_TRUE(set_router(*session, "gamma=1").ok());
  const size_t grown = memory_.live_bytes() - held;
  EXPECT_LE(grown, more + 4096);
  EXPECT_GT(grown, more * 95 / 100);
  ASSERT_TRUE(set_router(*session, "").ok());
  EXPECT_EQ(memory_.live_bytes(), held);
}

TEST_F(CapacityTest, WithoutRoomTheSessionStaysAsItWas) {
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine_.model(), options(), &account).ok());
  Machine capped(*bytes_, 1, nullptr, memory_.get(), account.total);
  const Box<Session> session = capped.session(options());
  const Floats before = last_logits(*session, text_);
  EXPECT_EQ(set_router(*session, "gamma=1").code(), MOE_ERR_BUDGET);
  EXPECT_EQ(session->chunk(), kDefaultChunk);
  EXPECT_EQ(session->router(1)->gamma, 0);
  ASSERT_TRUE(session->reset().ok());
  EXPECT_EQ(last_logits(*session, text_), before);

  const Box<Session> free = machine_.session(options());
  for (size_t n = 0;; ++n) {
    memory_.fail_in(n);
    const Status s = set_router(*free, "gamma=1");
    memory_.fail_in(FailingAllocator::kNever);
    if (s.ok()) break;
    EXPECT_EQ(s.code(), MOE_ERR_MEMORY);
    EXPECT_EQ(free->chunk(), kDefaultChunk);
    ASSERT_LT(n, 20u);
  }
  EXPECT_EQ(free->chunk(), kContext);
}

// Sends all tokens to expert 0 with the weight 0.5, except for the last one.
struct ToOneExpert {
  float last;  // its weight; 0: changes nothing
  static void route(void* user, const RoutedTokens&, Routing* r) {
    const float last = static_cast<const ToOneExpert*>(user)->last;
    for (int32_t t = 0; t < r->n_tokens && last != 0; ++t) {
      const ptrdiff_t at = static_cast<ptrdiff_t>(t) * r->max_k;
      r->count[t] = 1;
      r->expert[at] = 0;
      r->weight[at] = t + 1 < r->n_tokens ? 0.5f : last;
    }
  }
};

TEST(CapacityOfHooksTest, ChangedChoicesAreRankedByTheirWeights) {
  const auto bytes = model_with(0.5f);
  Machine machine(*bytes, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Tokens text = random_tokens(40, 64);
  // Logits of all tokens before the last one.
  const auto run = [&](ToOneExpert to, bool hooked) {
    const Box<Session> session = machine.session(options());
    const Status status =
        session->set_routing_hook(hooked ? RoutingHook{ToOneExpert::route, &to} : RoutingHook());
    EXPECT_TRUE(status.ok()) << status.text();
    Floats logits = eval_all(*session, text);
    logits.resize(logits.size() / text.size() * (text.size() - 1));
    return logits;
  };
  EXPECT_TRUE(run({0}, true) == run({0}, false)) << "a hook that changes nothing";
  // With the largest weight the last token takes the place of one before it.
  EXPECT_TRUE(run({0.4f}, true) == run({0.3f}, true));
  EXPECT_FALSE(run({0.6f}, true) == run({0.4f}, true));
}

}  // namespace
}  // namespace moe
