// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <string>

#include "tests/run/generate_run.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

TEST_F(GenerateTest, MakesTheTokensThatSamplingByHandMakes) {
  options_.n_top = 3;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(result_.finish, Finish::kLength);
  EXPECT_EQ(result_.n_prompt, 4);
  EXPECT_EQ(result_.n_generated, 40);
  EXPECT_EQ(seen_.tokens.size(), 40u);
  EXPECT_EQ(seen_.n_top, 3u);
  EXPECT_EQ(session_->position(), 44);
  const Box<Session> by_hand = machine_.session();
  ASSERT_TRUE(by_hand->eval(span(prompt_), LogitRows::kNone, nullptr).ok());
  for (size_t i = 0; i < 40; ++i) {
    TokenLogprob t{};
    ASSERT_TRUE(by_hand->sample(options_.sampling, &t, nullptr, 0).ok());
    EXPECT_EQ(t.token, seen_.tokens[i]);
    EXPECT_EQ(t.logprob, seen_.logprobs[i]);
    ASSERT_TRUE(by_hand->eval({&t.token, 1}, LogitRows::kNone, nullptr).ok());
  }
  EXPECT_EQ(seen_.text, std::string(seen_.tokens.begin(), seen_.tokens.end()));
}

TEST_F(GenerateTest, FiveAndFiveMoreEqualTen) {
  options_.max_tokens = 10;
  ASSERT_TRUE(run().ok());
  const Tokens ten = seen_.tokens;
  again();
  options_.max_tokens = 5;
  ASSERT_TRUE(run().ok());
  ASSERT_TRUE(run(false).ok());
  EXPECT_EQ(seen_.tokens, ten);
}

TEST_F(GenerateTest, FillsTheContextAndSaysSo) {
  options_.max_tokens = 0;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(result_.finish, Finish::kContext);
  EXPECT_EQ(session_->position(), session_->context());
  EXPECT_EQ(result_.n_generated, kTinyContext - 4);
  // The context is full: nothing is generated, and a prompt is refused.
  ASSERT_TRUE(run(false).ok());
  EXPECT_EQ(result_.n_generated, 0);
  EXPECT_EQ(run().code(), MOE_ERR_TOO_LONG);
}

TEST_F(GenerateTest, TheEosTokenIsNotReturned) {
  only("\x01");
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(result_.finish, Finish::kEos);
  EXPECT_EQ(result_.n_generated, 0);
  EXPECT_TRUE(seen_.tokens.empty());
  EXPECT_EQ(session_->position(), 4);
  options_.ignore_eos = true;
  ASSERT_TRUE(run(false).ok());
  EXPECT_EQ(result_.finish, Finish::kLength);
  EXPECT_EQ(seen_.tokens, Tokens(40, 1));
}

TEST_F(GenerateTest, StopStringsAcrossTokensAreNotReturned) {
  ASSERT_TRUE(run().ok());
  const std::string text = seen_.text;
  ASSERT_EQ(text.size(), 40u);
  for (const size_t at : {size_t{0}, size_t{5}, size_t{30}}) {
    again();
    const std::string stop = text.substr(at, 6);
    EXPECT_EQ(run_stops({"never", stop}), Finish::kStop);
    EXPECT_EQ(seen_.text, text.substr(0, text.find(stop)));
    EXPECT_EQ(static_cast<size_t>(session_->position()), 4 + text.find(stop) + 6);
  }
  // Text held back as the start of a stop is released at the end.
  again();
  EXPECT_EQ(run_stops({text.substr(37) + "!"}), Finish::kLength);
  EXPECT_EQ(seen_.text, text);
}

TEST_F(GenerateTest, BadStopsAreRefused) {
  const std::string_view empty[] = {""};
  options_.stop = {empty, 1};
  EXPECT_EQ(run().code(), MOE_ERR_ARGUMENT);
  const std::string_view good[] = {"x"};
  options_.stop = {good, 1};
  EXPECT_EQ(generate(*session_, nullptr, span(prompt_), options_, &result_).code(),
            MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(session_->position(), 0);
}

TEST_F(GenerateTest, TextComesInWholeCharacters) {
  only("\xc3\xa9");  // the two bytes of one character, in any order
  ASSERT_TRUE(run().ok());
  String expected;
  ASSERT_TRUE(tokenizer_->decode(span(seen_.tokens), true, expected).ok());
  EXPECT_EQ(seen_.text, expected.view());
  EXPECT_NE(seen_.text.find("\xc3\xa9"), std::string::npos);
}

TEST_F(GenerateTest, TheCallbackStopsIt) {
  seen_.stop_after = 7;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(result_.finish, Finish::kCallback);
  EXPECT_EQ(result_.n_generated, 7);
  EXPECT_EQ(session_->position(), 11);
}

TEST_F(GenerateTest, CancelAtEveryCallback) {
  options_.max_tokens = 8;
  ASSERT_TRUE(run().ok());
  const Tokens expected = seen_.tokens;
  for (size_t at = 1; at <= 8; ++at) {
    again();
    seen_.cancel = session_.get();
    seen_.cancel_at = at;
    result_.n_generated = -5;
    EXPECT_EQ(run().code(), MOE_ERR_CANCELLED);
    EXPECT_EQ(result_.n_generated, -5);
    EXPECT_EQ(seen_.tokens,
              Tokens(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(at)));
    EXPECT_EQ(static_cast<size_t>(session_->position()), 4 + at - 1);
    // The token that the cancel discarded is generated again.
    seen_ = Seen();
    ASSERT_TRUE(run(false).ok());
    EXPECT_EQ(seen_.tokens[0], expected[at - 1]);
  }
}

TEST_F(GenerateTest, WithoutATokenizerThereAreOnlyIds) {
  ASSERT_TRUE(generate(*session_, nullptr, span(prompt_), options_, &result_).ok());
  EXPECT_EQ(seen_.tokens.size(), 40u);
  EXPECT_TRUE(seen_.text.empty());
}

TEST_F(GenerateTest, EveryFailedAllocationIsAStatus) {
  const std::string_view stops[] = {"never", "abcabcabcabc"};
  options_.stop = {stops, 2};
  options_.max_tokens = 12;
  options_.callback = nullptr;
  const size_t failures = try_every_allocation_failure([&](const Allocator& memory) {
    Machine machine(*bytes_, 1, nullptr, memory);
    if (!machine.status().ok()) return machine.status().code();
    auto session = machine.try_session();
    if (!session.ok()) return session.status().code();
    return generate(*session.value(), tokenizer_.get(), span(prompt_), options_, &result_).code();
  });
  EXPECT_GT(failures, 10u);
}

TEST_F(GenerateTest, NothingIsAllocatedPerToken) {
  FailingAllocator memory;
  Machine machine(*bytes_, 1, nullptr, memory.get());
  const Box<Session> session = machine.session();
  const std::string_view stops[] = {"never"};
  options_.stop = {stops, 1};
  const auto allocations = [&](int32_t n_tokens) {
    EXPECT_TRUE(session->reset().ok());
    options_.max_tokens = n_tokens;
    const size_t before = memory.n_allocations();
    EXPECT_TRUE(generate(*session, tokenizer_.get(), span(prompt_), options_, &result_).ok());
    return memory.n_allocations() - before;
  };
  (void)allocations(150);
  const size_t n = allocations(10);
  for (const int32_t draft : {0, 8}) {
    options_.max_draft = draft;
    EXPECT_EQ(allocations(150), n);
  }
}

TEST_F(GenerateTest, BadOptionsChangeNothing) {
  const auto code = [&](auto change) {
    GenerateOptions o = options_;
    change(o);
    return generate(*session_, tokenizer_.get(), span(prompt_), o, &result_).code();
  };
  EXPECT_EQ(code([](GenerateOptions& o) { o.max_tokens = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](GenerateOptions& o) { o.n_top = 65; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](GenerateOptions& o) { o.n_top = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](GenerateOptions& o) { o.sampling.top_p = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(run(false).code(), MOE_ERR_STATE);
  EXPECT_EQ(session_->position(), 0);
}

/// A callback that changes logits.
struct Changer {
  Session* session = nullptr;
  size_t calls = 0;
  size_t last_text = 0;
  Status reentry;
  int32_t forced = -1;
  float value = 0;  // the logit of `forced`
  bool ban_all = false;
  size_t stop_at = ~size_t{0};

  static bool call(void* user, std::span<const int32_t> text, std::span<float> logits) {
    auto* c = static_cast<Changer*>(user);
    c->last_text = text.size();
    const int32_t id = 1;
    if (c->session != nullptr) c->reentry = c->session->eval({&id, 1}, LogitRows::kNone, nullptr);
    if (c->forced >= 0) logits[static_cast<size_t>(c->forced)] = c->value;
    for (float& l : logits) l = c->ban_all ? -std::numeric_limits<float>::infinity() : l;
    return ++c->calls != c->stop_at;
  }
};

class LogitsCallback : public GenerateTest {
 protected:
  void SetUp() override {
    GenerateTest::SetUp();
    options_.change_logits = Changer::call;
    options_.logits_user = &changer_;
  }
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Changer changer_;
};

TEST_F(LogitsCallback, ThatChangesNothingChangesNothing) {
  ASSERT_TRUE(run().ok());
  const Seen with = seen_;
  EXPECT_EQ(changer_.calls, 40u);
  EXPECT_EQ(changer_.last_text, prompt_.size() + 39);
  again();
  options_.change_logits = nullptr;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(seen_.tokens, with.tokens);
  EXPECT_EQ(seen_.logprobs, with.logprobs);
}

TEST_F(LogitsCallback, DecidesWhatIsChosen) {
  options_.sampling.bias = {};
  for (const float temperature : {0.0f, 1.0f}) {
    again();
    options_.sampling.temperature = temperature;
    changer_.forced = 'z';
    changer_.value = 1000;
    ASSERT_TRUE(run().ok());
    EXPECT_EQ(seen_.tokens, Tokens(40, 'z'));
    EXPECT_EQ(seen_.logprobs, std::vector<float>(40, 0.0f));
  }
  // The session's logits are unchanged.
  TokenLogprob own{}, fresh{};
  ASSERT_TRUE(session_->sample({}, &own, nullptr, 0).ok());
  const Tokens text(session_->tokens().begin(), session_->tokens().end());
  const Box<Session> other = machine_.session();
  ASSERT_TRUE(other->eval(span(text), LogitRows::kNone, nullptr).ok());
  ASSERT_TRUE(other->sample({}, &fresh, nullptr, 0).ok());
  EXPECT_EQ(own.token, fresh.token);
  EXPECT_EQ(own.logprob, fresh.logprob);
}

TEST_F(LogitsCallback, CanBanATokenButNotAll) {
  ASSERT_TRUE(run().ok());
  const int32_t most = seen_.tokens[0];
  again();
  changer_.forced = most;
  changer_.value = -kInfinity;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(std::count(seen_.tokens.begin(), seen_.tokens.end(), most), 0);
  again();
  changer_.ban_all = true;
  const Status status = run();
  EXPECT_EQ(status.code(), MOE_ERR_RANGE);
  EXPECT_NE(std::string(status.text()).find("every token is banned"), std::string::npos);
  EXPECT_EQ(session_->position(), static_cast<int32_t>(prompt_.size()));
}

TEST_F(LogitsCallback, MustLeaveFiniteLogits) {
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    again();
    changer_.forced = 7;
    changer_.value = bad;
    const Status status = run();
    EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
    EXPECT_NE(std::string(status.text()).find("logits callback: logit of token 7"),
              std::string::npos)
        << status.text();
    EXPECT_TRUE(seen_.tokens.empty());
  }
}

TEST_F(LogitsCallback, MayNotEnterTheSessionAgain) {
  changer_.session = session_.get();
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(changer_.reentry.code(), MOE_ERR_STATE);
  EXPECT_EQ(session_->position(), static_cast<int32_t>(prompt_.size()) + 40);
}

TEST_F(LogitsCallback, CanStop) {
  changer_.stop_at = 4;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(result_.finish, Finish::kCallback);
  EXPECT_EQ(result_.n_generated, 3);
  EXPECT_EQ(session_->position(), static_cast<int32_t>(prompt_.size()) + 3);
}

}  // namespace
}  // namespace moe
