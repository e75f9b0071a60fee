// SPDX-License-Identifier: MIT
// Generations whose tokens the caller evaluates make what moe_session_generate and moe_chat_reply
// make.

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

class StepsTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    ASSERT_EQ(moe_session_create(model_, nullptr, &session_, &error_), MOE_OK);
  }
  void TearDown() override {
    moe_session_free(session_);
    ServiceTest::TearDown();
  }
  void evaluate(const std::vector<int32_t>& tokens) {
    ASSERT_EQ(
        moe_session_eval(session_, tokens.data(), tokens.size(), MOE_ROWS_NONE, nullptr, &error_),
        MOE_OK)
        << error_.text;
  }
  // Runs to the end; takes the generation.
  void run(moe_generation* generation, Alone& made) {
    int32_t token = 0;
    while (token >= 0) {
      ASSERT_EQ(moe_generation_next(generation, &token, &made.finish, &error_), MOE_OK)
          << error_.text;
      if (token >= 0) evaluate({token});
    }
    moe_generation_free(generation);
  }

  moe_session* session_ = nullptr;
};

TEST_F(StepsTest, EqualAGenerationInOneCall) {
  for (const Json& request : std::vector<Json>{
           {{"prompt", "Once upon a time"}, {"temperature", 0}, {"max_tokens", 40}},
           {{"prompt", "The dog"}, {"temperature", 0.9}, {"seed", 5}, {"max_tokens", 30}},
           {{"prompt", "Lily"}, {"temperature", 0}, {"stop", "e"}, {"max_tokens", 50}},
           {{"prompt", "Tom"}, {"temperature", 0}, {"max_tokens", 0}, {"ignore_eos", true}},
           {{"prompt", "One day"}, {"temperature", 0}, {"max_tokens", 0}},
           {{"prompt", "A"}, {"temperature", 1}, {"seed", 3}, {"repetition_penalty", 1.3}}}) {
    const Alone expected = alone(request);
    Alone made;
    AloneParams p;
    read(request, p);
    p.params.piece_user = &made;
    ASSERT_EQ(moe_session_rewind(session_, 0, &error_), MOE_OK);
    evaluate(encode(request["prompt"]));
    moe_generation* generation = nullptr;
    ASSERT_EQ(moe_generation_create(session_, &p.params, &generation, &error_), MOE_OK);
    p = AloneParams();  // what the parameters point to was copied
    run(generation, made);
    EXPECT_EQ(made.text, expected.text) << request;
    EXPECT_EQ(made.logprobs, expected.logprobs);
    EXPECT_EQ(made.finish, expected.finish) << request;
  }
}

TEST_F(StepsTest, AdvanceWithDraftsToTheSameEnd) {
  const std::string twice = "The dog ran to the tree. The dog ran to the tree. The dog ran";
  for (const Json& request : std::vector<Json>{
           {{"prompt", twice}, {"temperature", 0}, {"max_tokens", 60}},
           {{"prompt", twice}, {"temperature", 0.4}, {"seed", 2}, {"max_tokens", 41}},
           {{"prompt", twice}, {"temperature", 0}, {"stop", "he"}, {"max_tokens", 60}},
           {{"prompt", "Tom"}, {"temperature", 0}, {"max_tokens", 0}, {"ignore_eos", true}},
           {{"prompt", "One day"}, {"temperature", 0}, {"max_tokens", 0}}}) {
    const Alone expected = alone(request);
    for (const int32_t most : {0, 1, 5, 16}) {
      Alone made;
      AloneParams p;
      read(request, p);
      p.params.piece_user = &made;
      p.params.max_draft = most;
      ASSERT_EQ(moe_session_rewind(session_, 0, &error_), MOE_OK);
      evaluate(encode(request["prompt"]));
      moe_generation* generation = nullptr;
      ASSERT_EQ(moe_generation_create(session_, &p.params, &generation, &error_), MOE_OK);
      int32_t token = 0;
      ASSERT_EQ(moe_generation_next(generation, &token, &made.finish, &error_), MOE_OK);
      for (int i = 0; token >= 0; ++i) {
        if (i % 5 == 4) {  // as when others joined
          evaluate({token});
          ASSERT_EQ(moe_generation_next(generation, &token, &made.finish, &error_), MOE_OK);
        } else {
          ASSERT_EQ(moe_generation_advance(generation, &token, &made.finish, &error_), MOE_OK)
              << error_.text;
        }
      }
      moe_generation_free(generation);
      EXPECT_EQ(made.text, expected.text) << request << most;
      EXPECT_EQ(made.logprobs, expected.logprobs);
      EXPECT_EQ(made.finish, expected.finish) << request;
    }
  }
}

TEST_F(StepsTest, NeedTheirTokensEvaluated) {
  auto params = MOE_INIT(moe_generate_params);
  moe_generation* generation = nullptr;
  EXPECT_EQ(moe_generation_create(session_, &params, &generation, &error_), MOE_ERR_STATE);
  evaluate(encode("Once"));
  params.max_draft = 17;
  EXPECT_EQ(moe_generation_create(session_, &params, &generation, &error_), MOE_ERR_RANGE);
  params.max_draft = 0;
  params.max_tokens = 2;
  ASSERT_EQ(moe_generation_create(session_, &params, &generation, &error_), MOE_OK);
  int32_t token = -1;
  moe_finish finish{};
  EXPECT_EQ(moe_generation_advance(generation, &token, &finish, &error_), MOE_ERR_STATE);
  ASSERT_EQ(moe_generation_next(generation, &token, &finish, &error_), MOE_OK);
  const int32_t first = token;
  EXPECT_EQ(moe_generation_next(generation, &token, &finish, &error_), MOE_ERR_STATE);
  evaluate({first + 1});  // another one
  EXPECT_EQ(moe_generation_next(generation, &token, &finish, &error_), MOE_ERR_STATE);
  ASSERT_EQ(moe_session_rewind(session_, moe_session_position(session_) - 1, &error_), MOE_OK);
  evaluate({first});
  EXPECT_EQ(moe_generation_advance(generation, &token, &finish, &error_), MOE_ERR_STATE);
  ASSERT_EQ(moe_generation_next(generation, &token, &finish, &error_), MOE_OK);
  EXPECT_EQ(token, -1);
  EXPECT_EQ(finish, MOE_FINISH_LENGTH);
  EXPECT_EQ(moe_generation_next(generation, &token, &finish, &error_), MOE_ERR_STATE);
  EXPECT_EQ(moe_generation_advance(generation, &token, &finish, &error_), MOE_ERR_STATE);
  EXPECT_EQ(moe_generation_advance(nullptr, &token, &finish, &error_), MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_generation_next(nullptr, &token, &finish, &error_), MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_generation_next(generation, nullptr, &finish, &error_), MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_generation_next(generation, &token, nullptr, &error_), MOE_ERR_ARGUMENT);
  moe_session_free(std::exchange(session_, nullptr));  // the generation keeps it
  moe_generation_free(generation);
  moe_generation_free(nullptr);
}

class ScriptStepsTest : public ScriptTest {};

TEST_F(ScriptStepsTest, EqualAReplyInOneCall) {
  moe_session* session = nullptr;
  moe_chat* chat = nullptr;
  ASSERT_EQ(moe_session_create(model_, nullptr, &session, &error_), MOE_OK);
  ASSERT_EQ(moe_chat_create(session, nullptr, &chat, &error_), MOE_OK) << error_.text;
  ASSERT_EQ(moe_chat_add(chat, "user", "Hello", 5, &error_), MOE_OK);
  Alone made;
  auto params = MOE_INIT(moe_generate_params);
  params.piece = Alone::take;
  params.piece_user = &made;
  moe_generation* generation = nullptr;
  EXPECT_EQ(moe_chat_begin_reply(chat, &params, &generation, &error_), MOE_ERR_STATE);
  std::vector<int32_t> tokens(200);
  size_t n = 0;
  ASSERT_EQ(moe_chat_tokens(chat, true, tokens.data(), tokens.size(), &n, &error_), MOE_OK);
  ASSERT_EQ(moe_session_eval(session, tokens.data(), n, MOE_ROWS_NONE, nullptr, &error_), MOE_OK);
  ASSERT_EQ(moe_chat_begin_reply(chat, &params, &generation, &error_), MOE_OK) << error_.text;
  moe_chat_free(chat);  // the generation needs it no longer
  int32_t token = 0;
  while (token >= 0) {
    ASSERT_EQ(moe_generation_next(generation, &token, &made.finish, &error_), MOE_OK);
    if (token < 0) break;
    ASSERT_EQ(moe_session_eval(session, &token, 1, MOE_ROWS_NONE, nullptr, &error_), MOE_OK);
  }
  moe_generation_free(generation);
  moe_session_free(session);
  EXPECT_EQ(made.thinking, "ab");
  EXPECT_EQ(made.text, "Yes.");
  EXPECT_EQ(made.finish, MOE_FINISH_EOS);
}

}  // namespace
}  // namespace moe_serve_test
