// SPDX-License-Identifier: MIT
// Requests and calls that are refused, with what is said of them.

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

struct Refused {
  const char* body;
  const char* param;  // "": none
  const char* says;   // a part of the message
  int status = 400;
};

class RefusalsTest : public ServiceTest {
 protected:
  void check(const Refused& r, moe_endpoint endpoint) {
    Answer answer;
    submit_text(answer, r.body, endpoint);
    ASSERT_TRUE(answer.ended()) << r.body;  // before the call returned
    const Json error = answer.wait()["error"];
    EXPECT_EQ(answer.status(), r.status) << r.body;
    EXPECT_EQ(error["param"], std::string(r.param).empty() ? Json() : Json(r.param)) << r.body;
    EXPECT_NE(error["message"].get<std::string>().find(r.says), std::string::npos) << r.body << "\n"
                                                                                   << error;
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
};

TEST_F(RefusalsTest, Bodies) {
  serve(slots(1));
  const std::string deep = R"({"prompt": )" + std::string(70, '[') + std::string(70, ']') + "}";
  const std::string very_deep = std::string(2000000, '[');
  for (const Refused& r : std::vector<Refused>{
           {"", "", "not valid JSON"},
           {"{", "", "not valid JSON"},
           {"[1]", "", "expected a JSON object, found a list"},
           {"12", "", "found a number"},
           {"{\"prompt\": \"\xff\"}", "", "UTF-8"},
           {R"({"prompt": "a", "max_tokens": 1e999})", "", "a number is too large"},
           {deep.c_str(), "", "deeper than 64"},
           {very_deep.c_str(), "", "deeper than 64"}}) {
    check(r, MOE_ENDPOINT_COMPLETIONS);
  }
}

TEST_F(RefusalsTest, FieldsOfCompletions) {
  serve(slots(1));
  for (const Refused& r : std::vector<Refused>{
           {R"({})", "prompt", "missing"},
           {R"({"prompt": null})", "prompt", "missing"},
           {R"({"prompt": 5})", "prompt", "found 5"},
           {R"({"prompt": []})", "prompt", "no tokens"},
           {R"({"prompt": [1, "a"]})", "prompt", "token ids"},
           {R"({"prompt": [-1]})", "prompt", "token ids"},
           {R"({"prompt": [1e9]})", "prompt", "token ids"},
           {R"({"prompt": [99999999999999999999]})", "prompt", "token ids"},
           {R"({"prompt": [["a"]]})", "prompt", "token ids"},
           {R"({"prompt": {"a": 1}})", "prompt", "a text"},
           {R"({"prompt": "a", "model": "gpt-4"})", "model", "expected 'stories", 404},
           {R"({"prompt": "a", "model": 4})", "model", "a string"},
           {R"({"prompt": "a", "max_tokens": 0})", "max_tokens", "1.."},
           {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens", "whole number"},
           {R"({"prompt": "a", "max_tokens": 18446744073709551615})", "max_tokens", "1.."},
           {R"({"prompt": "a", "max_tokens": "5"})", "max_tokens", "found \"5\""},
           {R"({"prompt": "a", "temperature": -1})", "temperature", "0..100"},
           {R"({"prompt": "a", "temperature": true})", "temperature", "found true"},
           {R"({"prompt": "a", "temperature": 1e300})", "temperature", "0..100"},
           {R"({"prompt": "a", "top_p": 0})", "top_p", "found 0"},
           {R"({"prompt": "a", "top_p": 1.5})", "top_p", "1e-06..1"},
           {R"({"prompt": "a", "top_k": -1})", "top_k", "whole number"},
           {R"({"prompt": "a", "min_p": 1})", "min_p", "0..0.999999"},
           {R"({"prompt": "a", "seed": -1})", "seed", "whole number"},
           {R"({"prompt": "a", "repetition_penalty": 0})", "repetition_penalty", "0.01..100"},
           {R"({"prompt": "a", "stop": ""})", "stop", "non-empty"},
           {R"({"prompt": "a", "stop": ["a", 5]})", "stop", "non-empty"},
           {R"({"prompt": "a", "stop": "\u0000"})", "stop", "non-empty"},
           {R"({"prompt": "a", "stream": "yes"})", "stream", "true or false"},
           {R"({"prompt": "a", "stream_options": {}})", "stream_options", "only with"},
           {R"({"prompt": "a", "stream": true, "stream_options": 1})", "stream_options", "object"},
           {R"({"prompt": "a", "stream": true, "stream_options": {"x": 1}})", "stream_options.x",
            "unknown field"},
           {R"({"prompt": "a", "n": 0})", "n", "1..64"},
           {R"({"prompt": "a", "n": 65})", "n", "1..64"},
           {R"({"prompt": ["a", "b"], "n": 40})", "prompt", "at most 64 texts"},
           {R"({"prompt": "a", "logprobs": 21})", "logprobs", "0..20"},
           {R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias", "token ids"},
           {R"({"prompt": "a", "logit_bias": {"5": 101}})", "logit_bias", "-100..100"},
           {R"({"prompt": "a", "logit_bias": 5})", "logit_bias", "object"},
           {R"({"prompt": "a", "echo": true})", "echo", "not supported"},
           {R"({"prompt": "a", "best_of": 2})", "best_of", "not supported"},
           {R"({"prompt": "a", "suffix": "b"})", "suffix", "not supported"},
           {R"({"prompt": "a", "frequency_penalty": 0.5})", "frequency_penalty", "not supported"},
           {R"({"prompt": "a", "temprature": 0.5})", "temprature", "unknown field"},
           {R"({"prompt": "a", "messages": []})", "messages", "unknown field"}}) {
    check(r, MOE_ENDPOINT_COMPLETIONS);
  }
  std::string text;
  while (text.size() < 4000) text += "once ";
  check({Json{{"prompt", text}}.dump().c_str(), "prompt", "expected at most 511 tokens"},
        MOE_ENDPOINT_COMPLETIONS);
  EXPECT_EQ(stats().n_refused, 46u);
  EXPECT_EQ(stats().n_requests, 0u);
}

TEST_F(RefusalsTest, FieldsOfChats) {
  serve(slots(1));
  for (
      const Refused& r : std::vector<Refused>{
          {R"({})", "messages", "missing"},
          {R"({"messages": []})", "messages", "non-empty"},
          {R"({"messages": "hi"})", "messages", "non-empty list"},
          {R"({"messages": [5]})", "messages[0]", "an object"},
          {R"({"messages": [{}]})", "messages[0].role", "missing"},
          {R"({"messages": [{"role": "user"}]})", "messages[0].content", "missing"},
          {R"({"messages": [{"role": 5, "content": "a"}]})", "messages[0].role", "a string"},
          {R"({"messages": [{"role": "tool", "content": "a"}]})", "messages[0].role", "'tool'"},
          {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content", "a string"},
          {R"({"messages": [{"role": "user", "content": [5]}]})", "messages[0].content[0]",
           "object"},
          {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
           "messages[0].content[0].type", "'image_url'"},
          {R"({"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]})",
           "messages[0].tool_calls", "not supported"},
          {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]})",
           "tools", "not supported"},
          {R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "auto"})",
           "tool_choice", "not supported"},
          {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}})",
           "response_format", "not supported"},
          {R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "max_completion_tokens": 5})",
           "max_completion_tokens", "one of them"},
          {R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 5})", "top_logprobs",
           "only with"},
          {R"({"messages": [{"role": "user", "content": "a"}], "logprobs": 5})", "logprobs",
           "true or false"},
          {R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "low"})",
           "reasoning_effort", "does not use it"},
          {R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"x9": 1}})",
           "chat_template_kwargs.x9", "does not use it"},
          {R"({"messages": [{"role": "user", "content": "a"}], "n": 64, "logprobs": true, "top_logprobs": 20})",
           "top_logprobs", "too many for one answer"},
          {R"({"messages": [{"role": "user", "content": "a"}], "prompt": "a"})", "prompt",
           "unknown field"}}) {
    check(r, MOE_ENDPOINT_CHAT);
  }
}

// Requests whose reading takes time by the square of their size.
TEST_F(RefusalsTest, OfTooMuchInOneRequest) {
  serve(slots(1));
  std::string keys = R"({"prompt": "a", "logit_bias": {)";
  for (int i = 0; i < 100000; ++i) keys += '"' + std::to_string(i) + "\": 0, ";
  keys += R"("x": 0}})";
  check({keys.c_str(), "", "more than 4096 keys"}, MOE_ENDPOINT_COMPLETIONS);
  check({R"({"prompt": "a", "seed": 1, "seed": 2})", "", "\"seed\" twice"},
        MOE_ENDPOINT_COMPLETIONS);
  std::string messages = R"({"messages": [)";
  for (int i = 0; i < 3000; ++i) messages += R"({"role": "user", "content": ""}, )";
  messages += R"({"role": "user", "content": "a"}]})";
  check({messages.c_str(), "messages", "at most 2048, found 3001"}, MOE_ENDPOINT_CHAT);
}

// Fields that clients send without a need for them.
TEST_F(RefusalsTest, NotOfFieldsWithoutEffect) {
  serve(slots(1));
  Answer answer;
  submit_text(
      answer,
      R"({"messages": [{"role": "user", "content": "a", "tool_calls": null}], "max_completion_tokens": 2,
    "user": "me", "metadata": {"a": "b"}, "store": false, "n": 1, "tools": [], "tool_choice": "none", "stream": false,
    "frequency_penalty": 0, "presence_penalty": 0.0, "response_format": {"type": "text"}, "logit_bias": null,
    "service_tier": "auto", "parallel_tool_calls": true, "stop": null, "logprobs": false})",
      MOE_ENDPOINT_CHAT);
  answer.wait();
  EXPECT_EQ(answer.status(), 200) << answer.wait();
}

TEST_F(RefusalsTest, AFullQueue) {
  auto params = slots(1);
  params.max_waiting = 2;
  serve(params);
  Answer running, first, second, third, large;
  running.hook = [&](size_t n) {
    if (n != 2) return;
    submit(first, {{"prompt", "a"}, {"max_tokens", 1}});
    submit(second, {{"prompt", "a"}, {"max_tokens", 1}});
    submit(third, {{"prompt", "a"}, {"max_tokens", 1}});
    submit(large, {{"prompt", "a"}, {"n", 4}});
  };
  submit(running, {{"prompt", "Once"}, {"max_tokens", 20}, {"stream", true}, {"ignore_eos", true}});
  running.wait();
  third.wait();
  EXPECT_EQ(third.status(), 429);
  EXPECT_GT(third.retry_after(), 0);
  EXPECT_EQ(third.wait()["error"]["type"], "rate_limit_error");
  EXPECT_EQ(third.wait()["error"]["message"], "no room for 1 text: 2 of at most 2 are waiting");
  EXPECT_EQ(third.ticket.id, 0u);
  EXPECT_EQ(large.status(), 400);  // it would never have room
  first.wait();
  second.wait();
  EXPECT_EQ(first.status(), 200);
  EXPECT_EQ(second.status(), 200);
}

TEST_F(RefusalsTest, RequestsThatTakeTooLong) {
  auto params = slots(1);
  params.max_seconds = 1;
  serve(params);
  Answer answer;
  answer.hook = [](size_t n) {
    if (n == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  };
  submit(answer, {{"prompt", "Once"}, {"max_tokens", 400}, {"stream", true}, {"ignore_eos", true}});
  EXPECT_EQ(answer.wait()["error"]["code"], "timeout");
  EXPECT_EQ(answer.status(), 504);
}

TEST_F(RefusalsTest, CallsWithBadArguments) {
  moe_service* none = nullptr;
  EXPECT_EQ(moe_service_create(nullptr, nullptr, &none, &error_), MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_service_create(model_, nullptr, nullptr, &error_), MOE_ERR_ARGUMENT);
  auto params = MOE_INIT(moe_service_params);
  params.struct_size = 1;
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_ARGUMENT);
  params = slots(-1);
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_RANGE);
  params = slots(1025);
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_RANGE);
  params = slots(1);
  params.slice = 5000;
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_RANGE);
  params = slots(1);
  params.chat_template = "no such template";
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_ARGUMENT);
  auto router = MOE_INIT(moe_router);
  router.gamma = 1.25f;
  params = slots(1);
  params.router = &router;
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_UNSUPPORTED);
  serve(slots(1));
  Answer answer;
  EXPECT_EQ(moe_service_submit(nullptr, MOE_ENDPOINT_CHAT, "", 0, Answer::take, &answer, nullptr,
                               &error_),
            MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_service_submit(service_, MOE_ENDPOINT_CHAT, nullptr, 1, Answer::take, &answer,
                               nullptr, &error_),
            MOE_ERR_ARGUMENT);
  EXPECT_EQ(
      moe_service_submit(service_, MOE_ENDPOINT_CHAT, "", 0, nullptr, &answer, nullptr, &error_),
      MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_service_submit(service_, static_cast<moe_endpoint>(0), "", 0, Answer::take, &answer,
                               nullptr, &error_),
            MOE_ERR_ARGUMENT);
  moe_service_ticket ticket{};  // without struct_size
  EXPECT_EQ(moe_service_submit(service_, MOE_ENDPOINT_CHAT, "{}", 2, Answer::take, &answer, &ticket,
                               &error_),
            MOE_ERR_ARGUMENT);
  EXPECT_TRUE(answer.events().empty());
  EXPECT_EQ(moe_service_submit(service_, MOE_ENDPOINT_CHAT, nullptr, 0, Answer::take, &answer,
                               nullptr, &error_),
            MOE_OK);
  EXPECT_EQ(answer.status(), 400);
  bool empty = false;
  EXPECT_EQ(moe_service_drain(service_, 0, nullptr, &error_), MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_service_drain(nullptr, 0, &empty, &error_), MOE_ERR_ARGUMENT);
  EXPECT_EQ(moe_service_get_stats(service_, nullptr, &error_), MOE_ERR_ARGUMENT);
  moe_service_cancel(nullptr, 1);
  moe_service_free(nullptr);
}

}  // namespace
}  // namespace moe_serve_test
