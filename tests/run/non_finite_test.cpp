// SPDX-License-Identifier: MIT
// Finite weights so large that logits overflow: an error wherever a caller would get the logits.

#include <cstring>

#include "src/run/generate.h"
#include "src/run/perplexity.h"
#include "tests/run/tiny_run.h"

namespace moe {
namespace {

constexpr int32_t kHuge =
    5;  // this token makes the residual stream NaN, for itself and later tokens

// With dense layers, because a router would detect the NaN before the logits are computed.
std::unique_ptr<MemorySink> overflowing_model() {
  return build_tiny_kind({"overflow", [](ModelConfig& c, TinyOptions& o) {
                            c.norm = NormKind::kLayer;
                            c.tie_embeddings = false;
                            c.layers[1] = c.layers[0];
                            o.biases = true;
                            o.huge_token = kHuge;
                          }});
}

class NonFiniteTest : public testing::Test {
 protected:
  NonFiniteTest() : bytes_(overflowing_model()), machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    SessionOptions options;
    options.chunk = 4;
    session_ = machine_.session(options);
    ASSERT_TRUE(session_);
  }
  static void expect_fault(const Status& s) {
    EXPECT_EQ(s.code(), MOE_ERR_NON_FINITE) << s.text();
    EXPECT_NE(std::strstr(s.text(), "logit of token"), nullptr) << s.text();
    EXPECT_NE(std::strstr(s.text(), "not a finite number"), nullptr) << s.text();
  }
  void expect_unharmed(int32_t position) {
    EXPECT_EQ(session_->position(), position);
    const Box<Session> fresh = machine_.session();
    const Tokens held(session_->tokens().begin(), session_->tokens().end());
    (void)eval_all(*fresh, held);
    EXPECT_EQ(eval_all(*session_, good_), eval_all(*fresh, good_));
  }

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Box<Session> session_;
  const Tokens good_ = {1, 2, 3};
  const Tokens bad_ = {1, 2, 3, 4, 6, kHuge, 7};  // two chunks
};

TEST_F(NonFiniteTest, TheLastRow) {
  Floats logits(static_cast<size_t>(machine_.vocab_size()), 7.0f);
  expect_fault(session_->eval(span(bad_), LogitRows::kLast, logits.data()));
  EXPECT_EQ(logits, Floats(logits.size(), 7.0f));
  expect_unharmed(4);  // the tokens of the chunk without the NaN
}

TEST_F(NonFiniteTest, AnyOfAllRows) {
  const size_t vocab = static_cast<size_t>(machine_.vocab_size());
  Floats logits(bad_.size() * vocab, 7.0f);
  expect_fault(session_->eval(span(bad_), LogitRows::kAll, logits.data()));
  EXPECT_NE(logits[4 * vocab], 7.0f);
  EXPECT_EQ(Floats(logits.begin() + static_cast<std::ptrdiff_t>(5 * vocab), logits.end()),
            Floats(2 * vocab, 7.0f));
  expect_unharmed(4);
}

TEST_F(NonFiniteTest, RowsThatNobodyAskedForAreFoundBySampling) {
  ASSERT_TRUE(session_->eval(span(bad_), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(session_->position(), 7);
  TokenLogprob out{};
  expect_fault(session_->sample({}, &out, nullptr, 0));
  Floats logits(static_cast<size_t>(machine_.vocab_size()));
  expect_fault(session_->eval(span(good_), LogitRows::kLast, logits.data()));
  ASSERT_TRUE(session_->rewind(5).ok());
  expect_unharmed(5);
}

TEST_F(NonFiniteTest, AStepOfSeveralSessions) {
  const Box<Session> other = machine_.session();
  Session* both[] = {other.get(), session_.get()};
  const Tokens step = {1, kHuge};
  Floats logits(2 * static_cast<size_t>(machine_.vocab_size()));
  const Status s = sessions_eval({both, 2}, step.data(), nullptr, logits.data());
  expect_fault(s);
  EXPECT_NE(std::strstr(s.text(), "session 1"), nullptr) << s.text();
  EXPECT_EQ(other->position(), 0);
  expect_unharmed(0);
}

TEST_F(NonFiniteTest, AScore) {
  Floats scores(bad_.size() - 1);
  expect_fault(score_tokens(*session_, span(bad_), scores));
  expect_unharmed(session_->position());
}

TEST_F(NonFiniteTest, PerplexityAndGeneration) {
  Perplexity p;
  expect_fault(measure_perplexity(*session_, span(bad_), {}, &p));
  EXPECT_EQ(session_->position(), 0);
  GenerateResult result;
  expect_fault(generate(*session_, nullptr, span(bad_), {}, &result));
  ASSERT_TRUE(session_->reset().ok());
  expect_unharmed(0);
}

std::string text_of_infinite_logits(float cap) {
  const auto bytes = build_tiny_kind({"infinite", [cap](ModelConfig& c, TinyOptions&) {
                                        c.logit_multiplier = 3e38f;
                                        c.logit_cap = cap;
                                      }});
  Machine machine(*bytes);
  Floats logits(static_cast<size_t>(machine.vocab_size()));
  const Status s = machine.session()->eval(span({1, 2, 3}), LogitRows::kLast, logits.data());
  EXPECT_EQ(s.code(), MOE_ERR_NON_FINITE);
  return s.text();
}

TEST(InfiniteLogits, AreNotHiddenByACap) {
  EXPECT_EQ(text_of_infinite_logits(30), text_of_infinite_logits(0));
}

}  // namespace
}  // namespace moe
