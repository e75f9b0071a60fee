// SPDX-License-Identifier: MIT
// "resident=P" under a memory cap: the experts that are skipped, and those that are not.

#include "tests/run/capped_model.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

class OffloadSkip : public testing::Test {
 protected:
  OffloadSkip()
      : bytes_(build_tiny_kind(two_moe_layers({"plain", [](ModelConfig&, TinyOptions&) {}}))),
        file_{*bytes_, {}},
        machine_(*bytes_) {
    text_ = random_tokens(60, machine_.vocab_size());
  }
  // One token at a time, so that no other token needs a skipped expert.
  Floats logits(Session& session, const char* router) {
    EXPECT_TRUE(session.reset().ok());
    EXPECT_TRUE(set_router(session, router).ok());
    EXPECT_TRUE(session.count_routing(true).ok());
    return eval_all(session, text_, 1);
  }
  static uint64_t n_skipped(const Session& session) {
    return session.routing_stats(0)->n_skipped + session.routing_stats(1)->n_skipped;
  }

  std::unique_ptr<MemorySink> bytes_;
  WatchedFile file_;
  Machine machine_;
  Tokens text_;
};

TEST_F(OffloadSkip, NothingWhileThereIsRoom) {
  const Box<Session> resident = machine_.session();
  const Floats expected = logits(*resident, "");
  EXPECT_TRUE(logits(*resident, "resident=1") == expected);
  EXPECT_EQ(n_skipped(*resident), 0u);
  CappedModel roomy(file_, {least_cap(*bytes_).with(16)});
  const Box<Session> session = roomy.session();
  EXPECT_TRUE(logits(*session, "resident=1") == expected);
  EXPECT_EQ(n_skipped(*session), 0u);
}

// With room for a single expert, the resident one always belongs to the other layer, so every token
// keeps only its best expert.
TEST_F(OffloadSkip, AllButTheBestWhereNothingIsInMemory) {
  CappedModel model(file_, {least_cap(*bytes_).with(1)});
  const Box<Session> session = model.session();
  const Floats all = logits(*session, "");
  const Floats best = logits(*session, "topk:1");
  const ExpertStats before = session->expert_stats();
  EXPECT_TRUE(logits(*session, "resident=1") == best);
  EXPECT_FALSE(best == all);
  EXPECT_EQ(session->expert_stats().n_uses - before.n_uses, 2 * text_.size());
  for (int32_t l = 0; l < 2; ++l) {
    const RoutingStats& s = *session->routing_stats(l);
    EXPECT_EQ(s.n_tokens, text_.size());
    EXPECT_EQ(s.n_skipped, text_.size());
    EXPECT_EQ(s.n_dropped, 0u);
    EXPECT_EQ(s.experts_per_token[1], text_.size());
    EXPECT_GT(s.skipped_probability, 0);
    EXPECT_LT(s.skipped_probability, static_cast<double>(text_.size()) / 2);
  }
  EXPECT_TRUE(logits(*session, "resident=0") == all);
  EXPECT_EQ(n_skipped(*session), 0u);
}

TEST_F(OffloadSkip, SkippedExpertsAreNotRead) {
  CappedModel model(file_, {least_cap(*bytes_).with(6)});
  const Box<Session> session = model.session();
  (void)logits(*session, "");
  uint64_t last_read = 0;
  uint64_t last_skipped = UINT64_MAX;
  for (const char* router : {"resident=1", "resident=0.25", "resident=0"}) {
    const uint64_t before = session->expert_stats().read_bytes;
    (void)logits(*session, router);
    const uint64_t read = session->expert_stats().read_bytes - before;
    EXPECT_GT(read, last_read) << router;
    EXPECT_LT(n_skipped(*session), last_skipped) << router;
    last_read = read;
    last_skipped = n_skipped(*session);
  }
}

}  // namespace
}  // namespace moe
