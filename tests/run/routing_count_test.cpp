// SPDX-License-Identifier: MIT
// Routing statistics count every token of the session's text once.

#include "tests/run/tiny_run.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

class RoutingCountTest : public testing::Test {
 protected:
  RoutingCountTest()
      : bytes_(build_tiny_kind({"plain", [](ModelConfig&, TinyOptions&) {}})), machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    SessionOptions options;
    options.chunk = 16;
    session_ = machine_.session(options);
    ASSERT_TRUE(session_);
    ASSERT_TRUE(session_->count_routing(true).ok());
  }
  Status eval() { return session_->eval(span(text_), LogitRows::kNone, nullptr); }
  void expect_counted(uint64_t tokens) {
    const RoutingStats& s = *session_->routing_stats(1);
    EXPECT_EQ(s.n_tokens, tokens);
    EXPECT_EQ(s.n_activations, tokens * 2 * 24);
    EXPECT_EQ(s.experts_per_token[2], tokens);
    uint64_t pairs = 0;
    for (int e = 0; e < 8; ++e) pairs += s.tokens_per_expert[e];
    EXPECT_EQ(pairs, tokens * 2);
    const RoutingStats& dense = *session_->routing_stats(0);
    EXPECT_EQ(dense.n_activations, tokens * 48);
    EXPECT_EQ(dense.n_positive > 0, tokens > 0);
    EXPECT_LE(dense.n_positive, dense.n_activations);
  }

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Box<Session> session_;
  /// Evaluates pieces of 9, 1 and 4 tokens together, and returns the number of FFN operations.
  int eval_together(std::initializer_list<Session*> sessions) {
    static constexpr size_t kPieces[] = {9, 1, 4};
    const std::vector<Session*> group = sessions;
    int n_ops = 0;
    machine_.hook().watch_ffn([&](const FfnOp&) { ++n_ops; });
    const Status status = sessions_eval(group, text_.data(), kPieces, nullptr);
    machine_.hook().watch_ffn({});
    EXPECT_TRUE(status.ok()) << status.text();
    return n_ops;
  }
  int n_layers() { return machine_.model().config().n_layers(); }
  Box<Session> with_router(const char* router) {
    Box<Session> session = machine_.session();
    EXPECT_TRUE(set_router(*session, router).ok());
    return session;
  }
  /// A session that has evaluated these tokens alone.
  Box<Session> alone(size_t from, size_t n) {
    Box<Session> session = machine_.session();
    EXPECT_TRUE(session->count_routing(true).ok());
    EXPECT_TRUE(session->eval(span(text_, from, n), LogitRows::kNone, nullptr).ok());
    return session;
  }
  void expect_same_counts(const Session& found, const Session& expected) {
    for (int layer = 0; layer < n_layers(); ++layer) {
      const RoutingStats& a = *found.routing_stats(layer);
      const RoutingStats& b = *expected.routing_stats(layer);
      EXPECT_EQ(a.n_tokens, b.n_tokens);
      EXPECT_EQ(a.n_dropped, b.n_dropped);
      EXPECT_EQ(a.n_positive, b.n_positive);
      EXPECT_EQ(a.n_activations, b.n_activations);
      EXPECT_GT(a.n_activations, 0u);
      if (b.tokens_per_expert == nullptr) continue;
      EXPECT_TRUE(std::equal(a.tokens_per_expert, a.tokens_per_expert + 8, b.tokens_per_expert));
      EXPECT_TRUE(std::equal(a.experts_per_token, a.experts_per_token + 9, b.experts_per_token));
    }
  }

  const Tokens text_ = random_tokens(40, 64);  // three chunks
};

// An expert that several texts need is read once, whether or not somebody counts.
TEST_F(RoutingCountTest, SessionsThatCountAreComputedTogether) {
  const Box<Session> silent = machine_.session();
  const Box<Session> last = machine_.session();
  ASSERT_TRUE(last->count_routing(true).ok());
  EXPECT_EQ(eval_together({session_.get(), silent.get(), last.get()}), n_layers());
  expect_same_counts(*session_, *alone(0, 9));
  expect_same_counts(*last, *alone(10, 4));
  EXPECT_EQ(silent->routing_stats(1), nullptr);
}

TEST_F(RoutingCountTest, SessionsWithTheSameRouterAreComputedTogether) {
  const Box<Session> second = with_router("topk:4"), third = with_router("topk:4");
  ASSERT_TRUE(set_router(*session_, "topk:4").ok());
  EXPECT_EQ(eval_together({session_.get(), second.get(), third.get()}), n_layers());
  EXPECT_EQ(session_->routing_stats(1)->experts_per_token[4], 9u);
  ASSERT_TRUE(set_router(*second, "topk:3").ok());
  EXPECT_GT(eval_together({session_.get(), second.get(), third.get()}), n_layers());
}

// A text skips experts whatever other texts need.
TEST_F(RoutingCountTest, SessionsThatMaySkipExpertsAreComputedApart) {
  const Box<Session> second = with_router("resident=0.2"), third = with_router("resident=0.2");
  ASSERT_TRUE(set_router(*session_, "resident=0.2").ok());
  EXPECT_GT(eval_together({session_.get(), second.get(), third.get()}), n_layers());
}

TEST_F(RoutingCountTest, CancelledPassesAreLeftOut) {
  machine_.hook().arm(nullptr);
  ASSERT_TRUE(eval().ok());
  const int n_ops = machine_.hook().n_ops();
  for (int at = 0; at < n_ops; ++at) {
    ASSERT_TRUE(session_->reset().ok());
    ASSERT_TRUE(session_->count_routing(true).ok());
    machine_.hook().arm([&](int op, Stream&) {
      if (op == at) session_->cancel();
    });
    ASSERT_EQ(eval().code(), MOE_ERR_CANCELLED);
    machine_.hook().disarm();
    expect_counted(static_cast<uint64_t>(session_->position()));
  }
}

TEST_F(RoutingCountTest, FailedPassesAreLeftOut) {
  machine_.hook().arm([](int op, Stream& stream) {
    if (op == 20) stream.latched = Status::error(MOE_ERR_NON_FINITE, "router scores");
  });
  ASSERT_EQ(eval().code(), MOE_ERR_NON_FINITE);
  machine_.hook().disarm();
  expect_counted(static_cast<uint64_t>(session_->position()));
}

TEST_F(RoutingCountTest, WhatIsComputedAgainCountsOnce) {
  // A late cancel, which hits the next call, makes that call compute twice.
  machine_.hook().arm([](int op, Stream& stream) {
    if (op == 8) stream.cancelled.store(true);
  });
  ASSERT_TRUE(eval().ok());
  machine_.hook().disarm();
  expect_counted(40);
  // Sampling after a rewind computes a token again.
  ASSERT_TRUE(session_->rewind(10).ok());
  TokenLogprob out{};
  ASSERT_TRUE(session_->sample({}, &out, nullptr, 0).ok());
  expect_counted(40);
}

TEST_F(RoutingCountTest, AGroupThatFailsCountsNothing) {
  const Box<Session> other = machine_.session();
  Session* both[] = {session_.get(), other.get()};
  const Tokens step = {1, 2};
  machine_.hook().arm([&](int op, Stream&) {
    if (op == 8) other->cancel();
  });
  ASSERT_EQ(sessions_eval({both, 2}, step.data(), nullptr, nullptr).code(), MOE_ERR_CANCELLED);
  machine_.hook().disarm();
  expect_counted(0);
  ASSERT_TRUE(sessions_eval({both, 2}, step.data(), nullptr, nullptr).ok());
  expect_counted(1);
}

}  // namespace
}  // namespace moe
