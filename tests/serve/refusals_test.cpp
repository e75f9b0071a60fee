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
    const bool anthropic =
        endpoint == MOE_ENDPOINT_MESSAGES || endpoint == MOE_ENDPOINT_COUNT_TOKENS;
    EXPECT_EQ(answer.wait().contains("type"), anthropic) << r.body;
    EXPECT_EQ(error["type"],
              anthropic && r.status == 404 ? "not_found_error" : "invalid_request_error");
    EXPECT_EQ(error.contains("code"), !anthropic);
    EXPECT_EQ(answer.names()[0], "");
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
          {R"({"messages": [{"role": "tool", "content": "a"}]})", "messages[0].tool_call_id",
           "missing"},
          {R"({"messages": [{"role": "nobody", "content": "a"}]})", "messages[0].role", "'nobody'"},
          {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content", "a string"},
          {R"({"messages": [{"role": "user", "content": [5]}]})", "messages[0].content[0]",
           "object"},
          {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
           "messages[0].content[0].type", "'image_url'"},
          {R"({"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]})",
           "messages[0].tool_calls", "only a message with the role assistant"},
          {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]})",
           "tools[0].function", "missing"},
          {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "a"}}]})",
           "tools", "no tools"},
          {R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "auto"})",
           "tool_choice", "only with 'tools'"},
          {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "xml"}})",
           "response_format.type", "'json_schema', found 'xml'"},
          {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema"}})",
           "response_format.json_schema", "missing"},
          {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}})",
           "response_format.json_schema.schema", "missing"},
          {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"schema": {"properties": {"b": {"unevaluatedItems": {}}}}}}})",
           "response_format.json_schema.schema", "#/properties/b/unevaluatedItems: this keyword"},
          {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"schema": false}}})",
           "response_format.json_schema.schema", "no text satisfies it"},
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

TEST_F(RefusalsTest, FieldsOfMessages) {
  serve(slots(1));
  // With what it needs besides the field in question.
  const auto with = [&](const char* member, const char* param, const char* says, int status = 400) {
    const std::string body =
        R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], )" +
        std::string(member) + "}";
    check({body.c_str(), param, says, status}, MOE_ENDPOINT_MESSAGES);
  };
  with(R"("model": "other")", "model", "expected 'stories", 404);
  with(R"("temperature": 101)", "temperature", "0..100");
  with(R"("top_p": 0)", "top_p", "1e-06..1");
  with(R"("top_k": -1)", "top_k", "whole number");
  with(R"("stop_sequences": [""])", "stop_sequences", "non-empty");
  with(R"("stop_sequences": 5)", "stop_sequences", "non-empty");
  with(R"("stop": "a")", "stop", "unknown field");
  with(R"("stream": 1)", "stream", "true or false");
  with(R"("system": 5)", "system", "a string or a list of parts");
  with(R"("system": [{"type": "image"}])", "system[0].type", "'text'");
  with(R"("system": [{"type": "text"}])", "system[0].text", "missing");
  with(R"("tools": [{"name": "a"}])", "tools[0].input_schema", "missing");
  with(R"("tool_choice": {"type": "any"})", "tool_choice", "only with 'tools'");
  with(R"("mcp_servers": [{}])", "mcp_servers", "not supported");
  with(R"("container": "a")", "container", "not supported");
  with(R"("prefill": "a")", "prefill", "not supported");
  with(R"("thinking": true)", "thinking", "an object");
  with(R"("thinking": {})", "thinking.type", "missing");
  with(R"("thinking": {"type": "x"})", "thinking.type", "adaptive");
  with(R"("thinking": {"type": "enabled"})", "thinking.budget_tokens", "missing");
  with(R"("thinking": {"type": "enabled", "budget_tokens": 0.5})", "thinking.budget_tokens",
       "whole number");
  with(R"("thinking": {"type": "enabled", "budget_tokens": 1024})", "thinking.type", "no switch");
  with(R"("thinking": {"type": "adaptive", "display": "omitted"})", "thinking.display",
       "not supported");
  with(R"("thinking": {"type": "adaptive", "x": 1})", "thinking.x", "unknown field");
  with(R"("output_config": {"format": {"type": "json_schema"}})", "output_config.format",
       "not supported");
  with(R"("output_config": {"effort": "low"})", "output_config.effort", "does not use it");
  with(R"("temprature": 1)", "temprature", "unknown field");
  for (
      const Refused& r : std::vector<Refused>{
          {R"({"messages": [{"role": "user", "content": "a"}]})", "max_tokens", "missing"},
          {R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0})", "max_tokens",
           "1.."},
          {R"({"max_tokens": 5})", "messages", "missing"},
          {R"({"max_tokens": 5, "messages": []})", "messages", "non-empty"},
          {R"({"max_tokens": 5, "messages": [5]})", "messages[0]", "an object"},
          {R"({"max_tokens": 5, "messages": [{"role": "user"}]})", "messages[0].content",
           "missing"},
          {R"({"max_tokens": 5, "messages": [{"role": "tool", "content": "a"}]})",
           "messages[0].role", "'tool'"},
          {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a", "name": "b"}]})",
           "messages[0].name", "unknown field"},
          {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]})",
           "messages[0].content[0].type", "'image'"},
          {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "a"}]}]})",
           "messages[0].content[0].type", "'thinking'"},
          {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]})",
           "messages[0].content[0].x", "unknown field"},
          {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
           "messages[1].role", "beginning of a reply"},
          {"{", "", "not valid JSON"}}) {
    check(r, MOE_ENDPOINT_MESSAGES);
  }
  check({R"({"messages": []})", "messages", "non-empty"}, MOE_ENDPOINT_COUNT_TOKENS);
  check({R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 5})", "max_tokens",
         "unknown field"},
        MOE_ENDPOINT_COUNT_TOKENS);
  check({R"({"messages": [{"role": "user", "content": "a"}], "model": "x"})", "model", "expected",
         404},
        MOE_ENDPOINT_COUNT_TOKENS);
}

TEST_F(RefusalsTest, FieldsOfResponses) {
  serve(slots(1));
  for (const Refused& r : std::vector<Refused>{
           {R"({})", "input", "missing"},
           {R"({"input": 5})", "input", "non-empty list"},
           {R"({"input": []})", "input", "non-empty"},
           {R"({"input": [5]})", "input[0]", "an object"},
           {R"({"input": [{"type": "reasoning"}]})", "input", "no message"},
           {R"({"input": [{"type": "computer_call"}]})", "input[0].type", "'computer_call'"},
           {R"({"input": [{"type": 5}]})", "input[0].type", "a string"},
           {R"({"input": [{"role": "user"}]})", "input[0].content", "missing"},
           {R"({"input": [{"content": "a"}]})", "input[0].role", "missing"},
           {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
            "input[0].content[0].type", "'input_text'"},
           {R"({"input": [{"role": "assistant", "content": [{"type": "refusal"}]}]})",
            "input[0].content[0].type", "'output_text'"},
           {R"({"input": [{"role": "user", "content": "a", "x": 1}]})", "input[0].x", "unknown"},
           {R"({"input": "a", "instructions": 5})", "instructions", "a string"},
           {R"({"input": "a", "model": "x"})", "model", "expected", 404},
           {R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens", "1.."},
           {R"({"input": "a", "max_tokens": 5})", "max_tokens", "unknown field"},
           {R"({"input": "a", "temperature": "hot"})", "temperature", "0..100"},
           {R"({"input": "a", "previous_response_id": "resp_1"})", "previous_response_id",
            "not supported"},
           {R"({"input": "a", "conversation": "c"})", "conversation", "not supported"},
           {R"({"input": "a", "background": true})", "background", "not supported"},
           {R"({"input": "a", "truncation": "auto"})", "truncation", "not supported"},
           {R"({"input": "a", "tools": [{"type": "web_search"}]})", "tools[0].type", "'function'"},
           {R"({"input": "a", "max_tool_calls": 1})", "max_tool_calls", "not supported"},
           {R"({"input": "a", "text": {"format": {"type": "xml"}}})", "text.format.type",
            "found 'xml'"},
           {R"({"input": "a", "text": {"verbosity": "low"}})", "text.verbosity", "not supported"},
           {R"({"input": "a", "text": {"x": 1}})", "text.x", "unknown field"},
           {R"({"input": "a", "text": 5})", "text", "an object"},
           {R"({"input": "a", "reasoning": 5})", "reasoning", "an object"},
           {R"({"input": "a", "reasoning": {"effort": "low"}})", "reasoning.effort",
            "does not use it"},
           {R"({"input": "a", "include": "a"})", "include", "a list"},
           {R"({"input": "a", "include": ["file_search_call.results"]})", "include[0]", "logprobs"},
           {R"({"input": "a", "top_logprobs": 2})", "top_logprobs", "only with"},
           {R"({"input": "a", "stream_options": {}})", "stream_options", "only with"},
           {R"({"input": "a", "stream": true, "stream_options": {"include_usage": true}})",
            "stream_options.include_usage", "unknown field"},
           {R"({"input": "a", "messages": []})", "messages", "unknown field"}}) {
    check(r, MOE_ENDPOINT_RESPONSES);
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
  // A test that waits for hours fails too.
  std::string lists = R"({"prompt": "a", "metadata": [0)";
  for (int i = 0; i < 1000000; ++i) lists += ", {}";
  lists += R"(], "seed": -1})";
  check({lists.c_str(), "seed", "expected a whole number"}, MOE_ENDPOINT_COMPLETIONS);
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

TEST_F(RefusalsTest, NotOfFieldsOfOtherApisWithoutEffect) {
  serve(slots(1));
  Answer message, response;
  submit_text(message,
              R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "tools": [],
    "metadata": {"user_id": "me"}, "service_tier": "auto", "thinking": {"type": "disabled"}, "stop_sequences": [],
    "tool_choice": {"type": "none"}, "cache_control": {"type": "ephemeral"}, "output_config": {}, "container": null})",
              MOE_ENDPOINT_MESSAGES);
  submit_text(
      response,
      R"({"input": "a", "max_output_tokens": 2, "store": true, "metadata": {"a": "b"}, "background": false,
    "text": {"format": {"type": "text"}, "verbosity": null}, "reasoning": {"effort": null, "summary": "auto"}, "include": [],
    "previous_response_id": null, "truncation": "disabled", "parallel_tool_calls": true, "tool_choice": "none"})",
      MOE_ENDPOINT_RESPONSES);
  EXPECT_EQ(message.wait()["type"], "message");
  EXPECT_EQ(response.wait()["store"], false);
  EXPECT_EQ(message.status(), 200);
  EXPECT_EQ(response.status(), 200);
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
  params.reserved = 1;
  EXPECT_EQ(moe_service_create(model_, &params, &none, &error_), MOE_ERR_ARGUMENT);
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
  EXPECT_EQ(moe_service_submit(service_, static_cast<moe_endpoint>(MOE_ENDPOINT_RERANK + 1), "", 0,
                               Answer::take, &answer, nullptr, &error_),
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
