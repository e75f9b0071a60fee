// SPDX-License-Identifier: MIT
// The shapes of answers.

#include <algorithm>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

TEST_F(ServiceTest, ACompletion) {
  auto params = slots(1);
  params.name = "tales";
  serve(params);
  const Json request = {{"model", "tales"}, {"prompt", "Once upon a time"},
                        {"temperature", 0}, {"max_tokens", 5},
                        {"logprobs", 2},    {"seed", 9}};
  Answer answer;
  submit(answer, request);
  const Json json = answer.wait();
  const Alone expected = alone(request);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "tales");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_GT(json["created"].get<int64_t>(), 1700000000);
  const Json choice = json["choices"][0];
  EXPECT_EQ(choice["text"], expected.text);
  EXPECT_EQ(choice["finish_reason"], "length");
  std::string joined;
  ASSERT_EQ(choice["logprobs"]["tokens"].size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    joined += choice["logprobs"]["tokens"][i].get<std::string>();
    EXPECT_EQ(choice["logprobs"]["token_logprobs"][i].get<float>(), expected.logprobs[i]);
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][i].size(), 2u);
  }
  EXPECT_EQ(joined, expected.text);
  EXPECT_EQ(json["usage"]["prompt_tokens"], encode("Once upon a time").size());
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["sampling"]["temperature"], 0.0);
  EXPECT_EQ(json["sampling"]["seed"], 9);
}

TEST_F(ServiceTest, PromptsAsTokens) {
  serve(slots(2));
  Answer text, ids, both;
  submit(text, {{"prompt", "The dog"}, {"temperature", 0}});
  submit(ids, {{"prompt", encode("The dog")}, {"temperature", 0}});
  submit(both,
         {{"prompt", Json::array({encode("The dog"), encode("A bird")})}, {"temperature", 0}});
  text.wait();
  ids.wait();
  both.wait();
  EXPECT_EQ(text.text(), alone({{"prompt", "The dog"}, {"temperature", 0}}).text);  // 16 tokens
  EXPECT_EQ(ids.text(), text.text());
  EXPECT_EQ(both.text(0), text.text());
  EXPECT_EQ(both.text(1), alone({{"prompt", "A bird"}, {"temperature", 0}}).text);
  Answer tokens;
  submit(tokens, {{"prompt", "The dog"}}, MOE_ENDPOINT_TOKENIZE);
  EXPECT_EQ(tokens.wait()["tokens"], Json(encode("The dog")));
  EXPECT_EQ(tokens.wait()["count"], encode("The dog").size());
}

TEST_F(ServiceTest, ARandomSeedIsSaid) {
  serve(slots(2));
  Answer answer, again;
  Json request = {{"prompt", "Once"}, {"temperature", 1.5}, {"max_tokens", 30}};
  submit(answer, request);
  request["seed"] = answer.wait()["sampling"]["seed"];
  submit(again, request);
  again.wait();
  EXPECT_EQ(again.text(), answer.text());
}

TEST_F(ServiceTest, BiasesBanAndForce) {
  serve(slots(1));
  const std::vector<int32_t> dog = encode("a dog");
  Json request = {{"prompt", "The"}, {"temperature", 0}, {"max_tokens", 4}, {"logprobs", 0}};
  const auto tokens = [&] {
    Answer answer;
    submit(answer, request);
    return Json(answer.wait()["choices"][0]["logprobs"]["tokens"]);
  };
  const Json plain = tokens();
  request["logit_bias"] = {{std::to_string(dog.back()), 100}};
  const Json forced = tokens();
  EXPECT_EQ(forced, Json(std::vector<Json>(4, forced[0])));
  EXPECT_NE(forced, plain);
  request["logit_bias"][std::to_string(dog.back())] = -100;
  const Json banned = tokens();
  EXPECT_EQ(std::count(banned.begin(), banned.end(), forced[0]), 0);
}

// Tokens of single bytes have no text of their own, and must not stand for one another.
TEST_F(ServiceTest, BytesWithoutACharacterAreSpelledOut) {
  serve(slots(1));
  std::vector<int32_t> bytes = encode("\xE2\x82\xAC");
  ASSERT_GE(bytes.size(), 3u);
  bytes.erase(bytes.begin(), bytes.end() - 3);  // a space may stand in front
  Json request = {{"prompt", "The"}, {"temperature", 0}, {"max_tokens", 1}, {"logprobs", 20}};
  for (const int32_t byte : bytes) request["logit_bias"][std::to_string(byte)] = 100;
  Answer answer;
  submit(answer, request);
  const Json logprobs = answer.wait()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"][0].get<std::string>().find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 20u);
}

class ScriptService : public ScriptTest {};

TEST_F(ScriptService, AReplyWithThinking) {
  serve(slots(2));
  Answer whole, stream;
  Json request = {{"messages", says("Hello")}, {"logprobs", true}, {"top_logprobs", 1}};
  submit(whole, request, MOE_ENDPOINT_CHAT);
  request["stream"] = true;
  submit(stream, request, MOE_ENDPOINT_CHAT);
  const Json json = whole.wait();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("chatcmpl-"));
  const Json message = json["choices"][0]["message"];
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"], "Yes.");
  EXPECT_EQ(message["reasoning_content"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_GT(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  const Json logprobs = json["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(logprobs.size(), json["usage"]["completion_tokens"]);
  EXPECT_EQ(logprobs[0]["top_logprobs"].size(), 1u);
  EXPECT_LE(logprobs[0]["logprob"].get<double>(), 0.0);
  stream.wait();
  const std::vector<Json> events = stream.events();
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(stream.text(), "Yes.");
  EXPECT_EQ(stream.text(0, "reasoning_content"), "ab");
  EXPECT_EQ(stream.finish(), "stop");
}

TEST_F(ScriptService, MessagesBecomeThePrompt) {
  serve(slots(1));
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "Hel"}}, {{"type", "text"}, {"text", "lo"}}});
  const auto count = [&](const Json& messages) {
    Answer answer;
    submit(answer, {{"messages", messages}}, MOE_ENDPOINT_TOKENIZE);
    return answer.wait()["tokens"];
  };
  const Json plain = count(says("Hello"));
  EXPECT_EQ(count(Json::array({{{"role", "user"}, {"content", parts}, {"name", "Ann"}}})), plain);
  const Json turns = Json::array({{{"role", "developer"}, {"content", "Be brief."}},
                                  {{"role", "user"}, {"content", "Hello"}},
                                  {{"role", "assistant"}, {"content", "Yes."}},
                                  {{"role", "user"}, {"content", "Bye"}}});
  Json named = turns;
  named[0]["role"] = "system";
  EXPECT_EQ(count(turns), count(named));
  EXPECT_GT(count(turns).size(), plain.size());
}

TEST_F(ServiceTest, SlotsFollowFromTheCap) {
  open(kStories, 64 << 20);
  serve();
  const moe_service_stats large = stats();
  EXPECT_EQ(large.n_slots, 8);
  auto plan = MOE_INIT(moe_memory_plan);
  ASSERT_EQ(moe_model_get_memory_plan(model_, nullptr, 1, &plan, &error_), MOE_OK);
  open(kStories, plan.least_bytes + plan.session_bytes);
  serve();
  EXPECT_LT(stats().n_slots, 8);
  EXPECT_GE(stats().n_slots, 1);
  Answer answer;
  const Json request = {{"prompt", "The dog"}, {"temperature", 0}};
  submit(answer, request);
  answer.wait();
  EXPECT_EQ(answer.text(), alone(request).text);
}

}  // namespace
}  // namespace moe_serve_test
