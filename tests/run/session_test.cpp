// SPDX-License-Identifier: MIT
#include "src/run/session.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "src/run/perplexity.h"
#include "tests/run/tiny_run.h"
#include "tests/support/failing_allocator.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

class SessionTest : public testing::Test {
 protected:
  SessionTest()
      : bytes_(build_tiny_kind({"plain", [](ModelConfig&, TinyOptions&) {}})),
        machine_(*bytes_, 2) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    session_ = machine_.session();
    ASSERT_TRUE(session_);
  }
  Tokens text(size_t n, uint32_t seed = 1) { return random_tokens(n, machine_.vocab_size(), seed); }
  Floats last_logits(Session& session, const Tokens& tokens) {
    Floats logits(static_cast<size_t>(machine_.vocab_size()));
    const Status s = session.eval(span(tokens), LogitRows::kLast, logits.data());
    EXPECT_TRUE(s.ok()) << s.text();
    return logits;
  }
  void expect_cancels_move_nobody(Session* const (&both)[2], const Tokens& t, const size_t (&n)[2],
                                  Session& cancelled);

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Box<Session> session_;
};

TEST_F(SessionTest, OptionsHaveDefaultsAndRanges) {
  EXPECT_EQ(session_->context(), kTinyContext);
  EXPECT_EQ(session_->chunk(), kTinyContext);  // never more than the context
  const auto code = [&](auto change) {
    SessionOptions o;
    change(o);
    return machine_.try_session(o).status().code();
  };
  EXPECT_EQ(code([](SessionOptions& o) { o.context = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SessionOptions& o) { o.context = kTinyContext + 1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SessionOptions& o) { o.chunk = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SessionOptions& o) { o.chunk = kMaxChunk + 1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SessionOptions& o) { o.context = 1; }), MOE_OK);
}

TEST_F(SessionTest, TooLongIsRefusedBeforeAnythingChanges) {
  const Tokens t = text(kTinyContext + 1);
  const Floats before = last_logits(*session_, text(5));
  const Status s = session_->eval(span(t, 0, kTinyContext - 4), LogitRows::kNone, nullptr);
  EXPECT_EQ(s.code(), MOE_ERR_TOO_LONG);
  EXPECT_EQ(session_->position(), 5);
  ASSERT_TRUE(session_->eval(span(t, 0, kTinyContext - 5), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(session_->position(), session_->context());
  EXPECT_EQ(session_->eval(span(t, 0, 1), LogitRows::kNone, nullptr).code(), MOE_ERR_TOO_LONG);
  ASSERT_TRUE(session_->reset().ok());
  EXPECT_EQ(last_logits(*session_, text(5)), before);
}

TEST_F(SessionTest, TokenIdsAreChecked) {
  for (const int32_t bad : {-1, machine_.vocab_size(), INT32_MAX, INT32_MIN}) {
    const Tokens t = {1, 2, bad};
    const Status s = session_->eval(span(t), LogitRows::kNone, nullptr);
    EXPECT_EQ(s.code(), MOE_ERR_RANGE);
    EXPECT_NE(std::strstr(s.text(), "token 2"), nullptr) << s.text();
    EXPECT_EQ(session_->position(), 0);
  }
}

TEST_F(SessionTest, NoTokensMoveNothing) {
  EXPECT_TRUE(session_->eval({}, LogitRows::kNone, nullptr).ok());
  float logit = 0;
  EXPECT_EQ(session_->eval({}, LogitRows::kLast, &logit).code(), MOE_ERR_ARGUMENT);
  EXPECT_EQ(session_->position(), 0);
}

TEST_F(SessionTest, TokensAndPositionFollowTheText) {
  const Tokens t = text(20);
  (void)eval_all(*session_, t);
  const std::span<const int32_t> seen = session_->tokens();
  EXPECT_EQ(Tokens(seen.begin(), seen.end()), t);
  ASSERT_TRUE(session_->rewind(7).ok());
  EXPECT_EQ(session_->position(), 7);
  EXPECT_EQ(session_->rewind(8).code(), MOE_ERR_RANGE);
  EXPECT_EQ(session_->rewind(-1).code(), MOE_ERR_RANGE);
}

TEST_F(SessionTest, SamplingAfterARewindSeesTheLogitsAgain) {
  TokenLogprob out{};
  EXPECT_EQ(session_->sample({}, &out, nullptr, 0).code(), MOE_ERR_STATE);
  const Tokens t = text(20);
  const Floats logits = eval_all(*session_, t);
  ASSERT_TRUE(session_->rewind(10).ok());
  ASSERT_TRUE(session_->sample({}, &out, nullptr, 0).ok());
  const auto row = logits.begin() + 9 * machine_.vocab_size();
  EXPECT_EQ(out.token, std::max_element(row, row + machine_.vocab_size()) - row);
  EXPECT_EQ(session_->position(), 10);
  EXPECT_EQ(eval_all(*session_, Tokens(t.begin() + 10, t.end())),
            Floats(logits.begin() + 10 * machine_.vocab_size(), logits.end()));
}

TEST_F(SessionTest, SamplingTwiceWithoutMovingGivesTheSameToken) {
  (void)last_logits(*session_, text(10));
  SamplingConfig config;
  config.temperature = 2;
  config.seed = 3;
  TokenLogprob a{};
  TokenLogprob b{};
  ASSERT_TRUE(session_->sample(config, &a, nullptr, 0).ok());
  ASSERT_TRUE(session_->sample(config, &b, nullptr, 0).ok());
  EXPECT_EQ(a.token, b.token);
  TokenLogprob top[65];
  EXPECT_EQ(session_->sample(config, &a, top, 65).code(), MOE_ERR_RANGE);
  config.top_p = 2;
  EXPECT_EQ(session_->sample(config, &a, nullptr, 0).code(), MOE_ERR_RANGE);
}

TEST_F(SessionTest, Int8CacheComesCloseToF16) {
  const Tokens t = text(120);
  const Floats exact = eval_all(*session_, t);
  SessionOptions options;
  options.kv = KvType::kInt8;
  const Box<Session> small = machine_.session(options);
  const Floats close = eval_all(*small, t);
  EXPECT_NE(exact, close);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(static_cast<double>(exact[i]) - static_cast<double>(close[i]), 2);
    norm += std::pow(static_cast<double>(exact[i]), 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 0.02);
  EXPECT_LT(small->bytes(), session_->bytes());
}

TEST_F(SessionTest, ASecondCallIsRefusedNotACrash) {
  std::vector<moe_status> codes;
  TokenLogprob out{};
  machine_.hook().arm([&](int op, Stream&) {
    if (op != 1) return;
    const Tokens one = {1};
    Session* both[] = {session_.get()};
    codes = {session_->eval(span(one), LogitRows::kNone, nullptr).code(),
             session_->sample({}, &out, nullptr, 0).code(),
             session_->rewind(0).code(),
             session_->reset().code(),
             set_router(*session_, "topk:1").code(),
             session_->count_routing(true).code(),
             sessions_eval({both, 1}, one.data(), nullptr, nullptr).code()};
  });
  EXPECT_TRUE(session_->eval(span(text(3)), LogitRows::kNone, nullptr).ok());
  machine_.hook().disarm();
  EXPECT_EQ(codes, std::vector<moe_status>(7, MOE_ERR_STATE));
  EXPECT_EQ(session_->position(), 3);
}

TEST_F(SessionTest, CancelAtEveryOperationLeavesItReusable) {
  SessionOptions options;
  options.chunk = 16;
  const Box<Session> session = machine_.session(options);
  const Tokens t = text(40);  // three chunks
  const Floats expected = eval_all(*machine_.session(), t);
  machine_.hook().arm(nullptr);
  ASSERT_TRUE(session->eval(span(t), LogitRows::kNone, nullptr).ok());
  const int n_ops = machine_.hook().n_ops();
  ASSERT_GT(n_ops, 15);
  for (int at = 0; at < n_ops; ++at) {
    ASSERT_TRUE(session->reset().ok());
    int after = 0;
    machine_.hook().arm([&](int op, Stream&) {
      if (op == at) session->cancel();
      if (op >= at) ++after;
    });
    const Status s = session->eval(span(t), LogitRows::kNone, nullptr);
    machine_.hook().disarm();
    ASSERT_EQ(s.code(), MOE_ERR_CANCELLED) << "operation " << at;
    EXPECT_LE(after, 5) << "operations after the cancel at " << at;  // within one layer
    EXPECT_EQ(session->position() % 16, 0);
    EXPECT_LT(session->position(), 40);
    // The session continues from its position with the same results.
    const size_t position = static_cast<size_t>(session->position());
    const Floats rest = eval_all(*session, Tokens(t.begin() + session->position(), t.end()));
    EXPECT_TRUE(std::equal(
        rest.begin(), rest.end(),
        expected.begin() +
            static_cast<std::ptrdiff_t>(position * static_cast<size_t>(machine_.vocab_size()))));
  }
}

TEST_F(SessionTest, CancelWithoutACallDoesNothing) {
  session_->cancel();
  EXPECT_TRUE(session_->eval(span(text(3)), LogitRows::kNone, nullptr).ok());
}

TEST_F(SessionTest, ALateCancelOfAnEarlierCallIsIgnored) {
  const Floats expected = last_logits(*machine_.session(), text(9));
  // The effect of a cancel() that was preempted until the next call had begun.
  machine_.hook().arm([&](int op, Stream& stream) {
    if (op == 2) stream.cancelled.store(true);
  });
  EXPECT_EQ(last_logits(*session_, text(9)), expected);
  machine_.hook().disarm();
}

TEST_F(SessionTest, ALateCancelGivesNoRowOfLogitsTwice) {
  const Tokens t = text(40);
  Perplexity expected;
  ASSERT_TRUE(measure_perplexity(*machine_.session(), span(t), {}, &expected).ok());
  machine_.hook().arm(nullptr);
  (void)eval_all(*machine_.session(), t);
  const int n_ops = machine_.hook().n_ops();
  for (int at = 0; at < n_ops; ++at) {
    machine_.hook().arm([&](int op, Stream& stream) {
      if (op == at) stream.cancelled.store(true);
    });
    Perplexity found;
    ASSERT_TRUE(measure_perplexity(*session_, span(t), {}, &found).ok());
    EXPECT_EQ(found.n_scored, expected.n_scored) << "operation " << at;
    EXPECT_EQ(found.mean_nll, expected.mean_nll) << "operation " << at;
  }
  machine_.hook().disarm();
}

TEST_F(SessionTest, CancellingOneOfAGroupStopsTheGroup) {
  Box<Session> other = machine_.session();
  Session* both[] = {session_.get(), other.get()};
  const Tokens t = {1, 2};
  machine_.hook().arm([&](int op, Stream&) {
    if (op == 2) other->cancel();
  });
  EXPECT_EQ(sessions_eval({both, 2}, t.data(), nullptr, nullptr).code(), MOE_ERR_CANCELLED);
  machine_.hook().disarm();
  EXPECT_EQ(session_->position(), 0);
  EXPECT_EQ(other->position(), 0);
  EXPECT_TRUE(sessions_eval({both, 2}, t.data(), nullptr, nullptr).ok());
}

TEST_F(SessionTest, ALostDevicePoisonsUntilReset) {
  (void)last_logits(*session_, text(5));
  machine_.hook().arm([](int op, Stream& stream) {
    if (op == 1) stream.latched = Status::error(MOE_ERR_DEVICE, "gone");
  });
  const Tokens one = {1};
  EXPECT_EQ(session_->eval(span(one), LogitRows::kNone, nullptr).code(), MOE_ERR_DEVICE);
  machine_.hook().disarm();
  TokenLogprob out{};
  EXPECT_EQ(session_->eval(span(one), LogitRows::kNone, nullptr).code(), MOE_ERR_STATE);
  EXPECT_EQ(session_->sample({}, &out, nullptr, 0).code(), MOE_ERR_STATE);
  EXPECT_EQ(session_->rewind(0).code(), MOE_ERR_STATE);
  ASSERT_TRUE(session_->reset().ok());
  EXPECT_EQ(last_logits(*session_, text(5)), last_logits(*machine_.session(), text(5)));
}

TEST_F(SessionTest, AnotherFaultLeavesItAsItWas) {
  (void)last_logits(*session_, text(5));
  machine_.hook().arm([](int op, Stream& stream) {
    if (op == 1) stream.latched = Status::error(MOE_ERR_NON_FINITE, "router scores");
  });
  const Tokens one = {1};
  EXPECT_EQ(session_->eval(span(one), LogitRows::kNone, nullptr).code(), MOE_ERR_NON_FINITE);
  machine_.hook().disarm();
  EXPECT_EQ(session_->position(), 5);
  const Box<Session> fresh = machine_.session();
  (void)last_logits(*fresh, text(5));
  EXPECT_EQ(last_logits(*session_, one), last_logits(*fresh, one));
}

TEST_F(SessionTest, GroupsAreChecked) {
  Box<Session> other = machine_.session();
  Session* both[] = {session_.get(), other.get()};
  Session* twice[] = {session_.get(), session_.get()};
  const Tokens t = {1, 2};
  const Tokens bad = {1, 64};
  EXPECT_EQ(sessions_eval({twice, 2}, t.data(), nullptr, nullptr).code(), MOE_ERR_STATE);
  const Status s = sessions_eval({both, 2}, bad.data(), nullptr, nullptr);
  EXPECT_EQ(s.code(), MOE_ERR_RANGE);
  EXPECT_NE(std::strstr(s.text(), "session 1"), nullptr) << s.text();
  EXPECT_TRUE(sessions_eval({both, 0}, nullptr, nullptr, nullptr).ok());
  Machine foreign(*bytes_);
  Box<Session> stranger = foreign.session();
  Session* mixed[] = {session_.get(), stranger.get()};
  EXPECT_EQ(sessions_eval({mixed, 2}, t.data(), nullptr, nullptr).code(), MOE_ERR_ARGUMENT);
  EXPECT_EQ(session_->position() + other->position() + stranger->position(), 0);
  // Refused calls leave every session usable.
  EXPECT_TRUE(sessions_eval({both, 2}, t.data(), nullptr, nullptr).ok());
}

TEST_F(SessionTest, PiecesAreChecked) {
  SessionOptions narrow;
  narrow.chunk = 8;
  session_ = machine_.session(narrow);
  Box<Session> other = machine_.session();
  Session* both[] = {session_.get(), other.get()};
  Session* twice[] = {other.get(), other.get()};
  const Tokens t = text(kTinyContext + 2);
  const auto status = [&](Session* const(&group)[2], size_t a, size_t b) {
    const size_t n[] = {a, b};
    return sessions_eval({group, 2}, t.data(), n, nullptr);
  };
  const auto expect = [](const Status& s, moe_status code, const char* words) {
    EXPECT_EQ(s.code(), code) << s.text();
    EXPECT_NE(std::strstr(s.text(), words), nullptr) << s.text();
  };
  expect(status(both, 3, 0), MOE_ERR_ARGUMENT, "session 1: no tokens");
  expect(status(both, 1, ~size_t{0}), MOE_ERR_TOO_LONG, "session 1: ");
  expect(status(twice, 1, 2), MOE_ERR_STATE, "session 1: ");
  ASSERT_TRUE(other->eval(span(t, 0, kTinyContext - 3), LogitRows::kNone, nullptr).ok());
  expect(status(both, 1, 4), MOE_ERR_TOO_LONG, "session 1: 4 tokens do not fit");
  EXPECT_EQ(session_->position(), 0);
  EXPECT_EQ(other->position(), kTinyContext - 3);
  EXPECT_TRUE(status(both, 1, 3).ok());
}

// Cancels one session of a call at each of its operations.
void SessionTest::expect_cancels_move_nobody(Session* const (&both)[2], const Tokens& t,
                                             const size_t (&n)[2], Session& cancelled) {
  ASSERT_TRUE(both[0]->reset().ok() && both[1]->reset().ok());
  machine_.hook().arm(nullptr);
  ASSERT_TRUE(sessions_eval({both, 2}, t.data(), n, nullptr).ok());
  const int n_ops = machine_.hook().n_ops();
  for (int at = 0; at < n_ops; ++at) {
    ASSERT_TRUE(both[0]->reset().ok() && both[1]->reset().ok());
    machine_.hook().arm([&](int op, Stream&) {
      if (op == at) cancelled.cancel();
    });
    EXPECT_EQ(sessions_eval({both, 2}, t.data(), n, nullptr).code(), MOE_ERR_CANCELLED) << at;
    EXPECT_EQ(both[0]->position() + both[1]->position(), 0) << at;
  }
  machine_.hook().disarm();
  EXPECT_TRUE(sessions_eval({both, 2}, t.data(), n, nullptr).ok());
}

TEST_F(SessionTest, ACancelInAnotherPassOfTheCallCounts) {
  SessionOptions narrow;
  narrow.chunk = 20;
  session_ = machine_.session(narrow);
  Box<Session> other = machine_.session();
  Session* both[] = {session_.get(), other.get()};
  const Tokens t = text(39);
  const size_t n[] = {20, 19};  // two passes
  for (Session* cancelled : both) expect_cancels_move_nobody(both, t, n, *cancelled);
}

TEST_F(SessionTest, ACancelledMixedPassMovesNobody) {
  Box<Session> other = machine_.session();
  Session* both[] = {session_.get(), other.get()};
  const Tokens t = text(40);
  const size_t n[] = {1, 39};
  expect_cancels_move_nobody(both, t, n, *other);
  EXPECT_EQ(last_logits(*other, {5}), [&] {
    const Box<Session> alone = machine_.session();
    (void)last_logits(*alone, Tokens(t.begin() + 1, t.end()));
    return last_logits(*alone, {5});
  }());
}

TEST_F(SessionTest, SessionsWithOtherRoutersShareACall) {
  Box<Session> other = machine_.session();
  Box<Session> third = machine_.session();
  ASSERT_TRUE(set_router(*other, "topk:8").ok());
  ASSERT_TRUE(third->count_routing(true).ok());
  Session* group[] = {session_.get(), other.get(), third.get()};
  const Tokens t = {5, 5, 5};
  const size_t vocab = static_cast<size_t>(machine_.vocab_size());
  Floats logits(3 * vocab);
  ASSERT_TRUE(sessions_eval({group, 3}, t.data(), nullptr, logits.data()).ok());
  EXPECT_EQ(0, std::memcmp(&logits[0], &logits[2 * vocab], vocab * sizeof(float)));
  EXPECT_NE(0, std::memcmp(&logits[0], &logits[vocab], vocab * sizeof(float)));
  const Box<Session> alone = machine_.session();
  ASSERT_TRUE(set_router(*alone, "topk:8").ok());
  const Floats expected = last_logits(*alone, {5});
  EXPECT_EQ(0, std::memcmp(&logits[vocab], expected.data(), vocab * sizeof(float)));
  EXPECT_EQ(third->routing_stats(1)->n_tokens, 1u);
}

TEST_F(SessionTest, RouterOverrideIsValidatedThenUndone) {
  const Floats plain = last_logits(*session_, text(5));
  ASSERT_TRUE(session_->reset().ok());
  EXPECT_EQ(set_router(*session_, "topk:9").code(), MOE_ERR_RANGE);
  EXPECT_EQ(set_router(*session_, "nonsense").code(), MOE_ERR_ARGUMENT);
  EXPECT_EQ(session_->router(1)->k, 2);
  EXPECT_EQ(session_->router(0), nullptr);
  ASSERT_TRUE(set_router(*session_, "threshold:1").ok());
  EXPECT_EQ(session_->router(1)->kind, RouterKind::kThreshold);
  const Floats all_experts = last_logits(*session_, text(5));
  EXPECT_NE(plain, all_experts);
  ASSERT_TRUE(session_->reset().ok());
  ASSERT_TRUE(set_router(*session_, "topk:8").ok());
  EXPECT_EQ(last_logits(*session_, text(5)), all_experts);
  ASSERT_TRUE(session_->reset().ok());
  ASSERT_TRUE(session_->set_router(nullptr).ok());
  EXPECT_EQ(last_logits(*session_, text(5)), plain);
}

TEST_F(SessionTest, ACapacityMakesACallOneChunk) {
  SessionOptions options;
  options.chunk = 16;
  const Box<Session> session = machine_.session(options);
  ASSERT_TRUE(set_router(*session, "gamma=0.5").ok());
  ASSERT_TRUE(session->count_routing(true).ok());
  EXPECT_EQ(session->eval(span(text(17)), LogitRows::kNone, nullptr).code(), MOE_ERR_TOO_LONG);
  ASSERT_TRUE(session->eval(span(text(16)), LogitRows::kNone, nullptr).ok());
  const RoutingStats* stats = session->routing_stats(1);
  EXPECT_GT(stats->n_dropped,
            0u);  // 32 pairs, and a capacity of one token per expert, of which there are 8
  for (int e = 0; e < 8; ++e) EXPECT_LE(stats->tokens_per_expert[e], 1u);
}

TEST_F(SessionTest, RoutingIsCountedOnRequest) {
  EXPECT_EQ(session_->routing_stats(1), nullptr);
  ASSERT_TRUE(session_->count_routing(true).ok());
  (void)eval_all(*session_, text(30));
  const RoutingStats* stats = session_->routing_stats(1);
  ASSERT_NE(stats, nullptr);
  const RoutingStats* dense = session_->routing_stats(0);
  ASSERT_NE(dense, nullptr);
  EXPECT_EQ(dense->tokens_per_expert, nullptr);
  EXPECT_EQ(dense->n_activations, 30u * 48u);
  uint64_t pairs = 0;
  for (int e = 0; e < 8; ++e) pairs += stats->tokens_per_expert[e];
  EXPECT_EQ(pairs, 60u);
  EXPECT_EQ(stats->experts_per_token[2], 30u);
  EXPECT_EQ(stats->n_tokens, 30u);
  EXPECT_EQ(stats->n_dropped, 0u);
  EXPECT_EQ(stats->n_activations, 60u * 24u);
  EXPECT_GT(stats->n_positive, 0u);
  EXPECT_LT(stats->n_positive, stats->n_activations);
  ASSERT_TRUE(session_->count_routing(true).ok());
  EXPECT_EQ(session_->routing_stats(1)->n_tokens, 0u);
  EXPECT_EQ(session_->routing_stats(0)->n_activations, 0u);
  ASSERT_TRUE(session_->count_routing(false).ok());
  EXPECT_EQ(session_->routing_stats(1), nullptr);
}

TEST_F(SessionTest, TwoThreadsTwoSessionsOneModel) {
  const Tokens a = text(60, 1);
  const Tokens b = text(60, 2);
  const Floats expected_a = eval_all(*machine_.session(), a);
  const Floats expected_b = eval_all(*machine_.session(), b);
  const auto work = [&](const Tokens& t, const Floats& expected, std::atomic<int>* wrong) {
    for (size_t call : {size_t{60}, size_t{1}, size_t{9}}) {
      const Box<Session> session = machine_.session();
      if (eval_all(*session, t, call) != expected) ++*wrong;
    }
  };
  std::atomic<int> wrong{0};
  std::thread other([&] { work(b, expected_b, &wrong); });
  work(a, expected_a, &wrong);
  other.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(SessionTest, CancelFromAnotherThread) {
  std::atomic<bool> done{false};
  std::thread canceller([&] {
    while (!done) session_->cancel();
  });
  int cancelled = 0;
  // On a busy machine the other thread may start late.
  for (int i = 0; i < 20 || (cancelled == 0 && i < 100000); ++i) {
    const Status s = session_->eval(span(text(100)), LogitRows::kNone, nullptr);
    if (s.code() == MOE_ERR_CANCELLED)
      ++cancelled;
    else
      EXPECT_TRUE(s.ok()) << s.text();
    EXPECT_TRUE(session_->reset().ok());
  }
  done = true;
  canceller.join();
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(last_logits(*session_, text(5)), last_logits(*machine_.session(), text(5)));
}

}  // namespace
}  // namespace moe
