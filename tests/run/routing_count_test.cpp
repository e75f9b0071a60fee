// SPDX-License-Identifier: MIT
// Routing statistics count every token of the session's text once.

#include "tests/run/tiny_run.h"

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
  const Tokens text_ = random_tokens(40, 64);  // three chunks
};

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
