// SPDX-License-Identifier: MIT
// Answers in the shapes of Anthropic's messages and of OpenAI's responses, whole and in events.

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

// The model thinks "ab" and answers "Yes.".
class ShapesTest : public ScriptTest {
 protected:
  void SetUp() override {
    ScriptTest::SetUp();
    auto params = slots(1);
    params.name = "script";
    params.no_reuse = 1;  // for the same usage in all answers
    serve(params);
  }
  int64_t count(const Json& request, moe_endpoint endpoint = MOE_ENDPOINT_COUNT_TOKENS) {
    return ask(request, endpoint)[endpoint == MOE_ENDPOINT_TOKENIZE ? "count" : "input_tokens"];
  }
  /// With the same in place of what every answer has of its own.
  static Json without_own(Json json) {
    for (const char* key : {"id", "item_id"}) {
      if (json.contains(key)) json[key] = std::string(json[key]).substr(0, 3);
    }
    if (json.contains("created_at")) json["created_at"] = 0;
    for (auto& [key, value] : json.items()) {
      if (value.is_structured()) value = without_own(value);
    }
    return json;
  }
  static Json message_request() {
    return {{"model", "script"},         {"max_tokens", 50}, {"system", "Be brief."},
            {"messages", says("Hello")}, {"seed", 3},        {"temperature", 0}};
  }
  static Json response_request() {
    return {{"model", "script"},
            {"max_output_tokens", 50},
            {"instructions", "Be brief."},
            {"input", "Hello"},
            {"seed", 3},
            {"temperature", 0},
            {"metadata", {{"a", "b"}}}};
  }
  static Json sampling() {
    return {{"temperature", 0.0},        {"top_k", 0}, {"top_p", 0.95}, {"min_p", 0.05},
            {"repetition_penalty", 1.0}, {"seed", 3}};
  }
};

TEST_F(ShapesTest, AMessage) {
  const Json json = ask(message_request(), kMessages);
  const int64_t n_prompt = count({{"system", "Be brief."}, {"messages", says("Hello")}});
  const Json expected = {
      {"id", "msg"},
      {"type", "message"},
      {"role", "assistant"},
      {"model", "script"},
      {"content", Json::array({{{"type", "thinking"}, {"thinking", "ab"}, {"signature", ""}},
                               {{"type", "text"}, {"text", "Yes."}}})},
      {"stop_reason", "end_turn"},
      {"stop_sequence", nullptr},
      {"usage",
       {{"input_tokens", n_prompt},
        {"cache_creation_input_tokens", 0},
        {"cache_read_input_tokens", 0},
        {"output_tokens", json["usage"]["output_tokens"]}}},
      {"system_fingerprint", json["system_fingerprint"]},
      {"sampling", sampling()}};
  EXPECT_EQ(without_own(json), expected);
  EXPECT_GT(json["usage"]["output_tokens"], 4);
}

TEST_F(ShapesTest, AMessageInEvents) {
  Json request = message_request();
  const Json whole = ask(request, kMessages);
  request["stream"] = true;
  Answer answer;
  EXPECT_EQ(submit(answer, request, kMessages).stream, 1);
  answer.wait();
  Json start = whole;
  start["content"] = Json::array();
  start["stop_reason"] = nullptr;
  start["usage"]["output_tokens"] = 0;
  std::vector<Json> events = answer.events();
  EXPECT_EQ(without_own(events[0]), without_own({{"type", "message_start"}, {"message", start}}));
  std::vector<Json> blocks;
  std::vector<std::string> kinds;  // without repetitions
  for (size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    EXPECT_EQ(answer.names()[i], event["type"]);
    if (kinds.empty() || kinds.back() != event["type"]) kinds.push_back(event["type"]);
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], blocks.size());
      blocks.push_back(event["content_block"]);
    }
    if (event["type"] != "content_block_delta") continue;
    EXPECT_EQ(event["index"], blocks.size() - 1);
    const char* member = blocks.size() == 1 ? "thinking" : "text";
    EXPECT_EQ(event["delta"]["type"], std::string(member) + "_delta");
    Json& text = blocks.back()[member];
    text = std::string(text) + std::string(event["delta"][member]);
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{
                       "message_start", "content_block_start", "content_block_delta",
                       "content_block_stop", "content_block_start", "content_block_delta",
                       "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(Json(blocks), whole["content"]);
  const Json& delta = events[events.size() - 2];
  EXPECT_EQ(delta["delta"], Json({{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}}));
  EXPECT_EQ(delta["usage"], whole["usage"]);
}

TEST_F(ShapesTest, AResponse) {
  const Json json = ask(response_request(), kResponses);
  const int64_t n_prompt = count({{"system", "Be brief."}, {"messages", says("Hello")}});
  const Json made = json["usage"]["output_tokens"];
  const Json thinking = {{"id", "rs_"},
                         {"type", "reasoning"},
                         {"summary", Json::array()},
                         {"status", "completed"},
                         {"content", Json::array({{{"type", "reasoning_text"}, {"text", "ab"}}})}};
  const Json message = {{"id", "msg"},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"status", "completed"},
                        {"content", Json::array({{{"type", "output_text"},
                                                  {"text", "Yes."},
                                                  {"annotations", Json::array()},
                                                  {"logprobs", Json::array()}}})}};
  const Json expected = {
      {"id", "res"},
      {"object", "response"},
      {"created_at", 0},
      {"status", "completed"},
      {"background", false},
      {"error", nullptr},
      {"incomplete_details", nullptr},
      {"instructions", "Be brief."},
      {"max_output_tokens", 50},
      {"metadata", {{"a", "b"}}},
      {"model", "script"},
      {"output", Json::array({thinking, message})},
      {"parallel_tool_calls", false},
      {"previous_response_id", nullptr},
      {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
      {"store", false},
      {"temperature", 0.0},
      {"text", {{"format", {{"type", "text"}}}}},
      {"tool_choice", "none"},
      {"tools", Json::array()},
      {"top_logprobs", 0},
      {"top_p", 0.95},
      {"truncation", "disabled"},
      {"usage",
       {{"input_tokens", n_prompt},
        {"input_tokens_details", {{"cached_tokens", 0}, {"cache_write_tokens", 0}}},
        {"output_tokens", made},
        {"output_tokens_details",
         {{"reasoning_tokens", json["usage"]["output_tokens_details"]["reasoning_tokens"]}}},
        {"total_tokens", n_prompt + int64_t{made}}}},
      {"user", nullptr},
      {"system_fingerprint", json["system_fingerprint"]},
      {"sampling", sampling()}};
  EXPECT_EQ(without_own(json), expected);
}

TEST_F(ShapesTest, AResponseInEvents) {
  Json request = response_request();
  const Json whole = ask(request, kResponses);
  request["stream"] = true;
  Answer answer;
  submit(answer, request, kResponses);
  const Json last = answer.wait();
  EXPECT_EQ(without_own(last["response"]), without_own(whole));
  std::vector<std::string> kinds;  // without repetitions
  std::string item, texts[2];
  const std::vector<Json> events = answer.events();
  for (size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    EXPECT_EQ(answer.names()[i], event["type"]);
    EXPECT_EQ(event["sequence_number"], i);
    if (kinds.empty() || kinds.back() != event["type"]) kinds.push_back(event["type"]);
    if (event["type"] == "response.output_item.added") item = event["item"]["id"];
    if (event.contains("item_id")) {
      EXPECT_EQ(event["item_id"], item);
      EXPECT_EQ(event["content_index"], 0);
    }
    const size_t index = event.value("output_index", size_t{0});
    if (event.contains("delta")) texts[index] += event["delta"];
    if (event.contains("text")) {
      EXPECT_EQ(event["text"], texts[index]);
    }
    if (event["type"] == "response.output_item.done") {
      EXPECT_EQ(event["item"], last["response"]["output"][index]);
    }
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{
                       "response.created", "response.in_progress", "response.output_item.added",
                       "response.content_part.added", "response.reasoning_text.delta",
                       "response.reasoning_text.done", "response.content_part.done",
                       "response.output_item.done", "response.output_item.added",
                       "response.content_part.added", "response.output_text.delta",
                       "response.output_text.done", "response.content_part.done",
                       "response.output_item.done", "response.completed"}));
  EXPECT_EQ(texts[0], "ab");
  EXPECT_EQ(texts[1], "Yes.");
}

TEST_F(ShapesTest, EndsHaveTheirReasons) {
  Json request = message_request();
  request["stop_sequences"] = {"No", "s."};
  Json json = ask(request, kMessages);
  EXPECT_EQ(json["stop_reason"], "stop_sequence");
  EXPECT_EQ(json["stop_sequence"], "s.");
  EXPECT_EQ(json["content"][1]["text"], "Ye");
  request["max_tokens"] = 2;
  json = ask(request, kMessages);
  EXPECT_EQ(json["stop_reason"], "max_tokens");
  EXPECT_EQ(json["usage"]["output_tokens"], 2);
  request = response_request();
  request["max_output_tokens"] = 2;
  json = ask(request, kResponses);
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"], Json({{"reason", "max_output_tokens"}}));
  for (const Json& item : json["output"]) EXPECT_EQ(item["status"], "incomplete");
  request["stream"] = true;
  Answer answer;
  submit(answer, request, kResponses);
  EXPECT_EQ(answer.wait()["type"], "response.incomplete");
}

TEST_F(ShapesTest, LogprobsAreOfTheMessageAlone) {
  Json request = response_request();
  request["include"] = {"message.output_text.logprobs", "reasoning.encrypted_content"};
  request["top_logprobs"] = 2;
  const Json whole = ask(request, kResponses);
  const Json& tokens = whole["output"][1]["content"][0]["logprobs"];
  std::string text;
  for (const Json& token : tokens) {
    text += token["token"];
    EXPECT_EQ(token["top_logprobs"].size(), 2u);
  }
  EXPECT_NE(text.find("Yes."), std::string::npos) << text;
  EXPECT_FALSE(whole["output"][0]["content"][0].contains("logprobs"));
  request["stream"] = true;
  Answer answer;
  submit(answer, request, kResponses);
  EXPECT_EQ(answer.wait()["response"]["output"][1]["content"][0]["logprobs"], tokens);
  size_t n = 0;
  for (const Json& event : answer.events()) {
    if (event["type"] == "response.output_text.delta") n += event["logprobs"].size();
  }
  EXPECT_GT(n, 0u);
  EXPECT_LE(n, tokens.size());
}

// The same conversation in the words of each endpoint.
TEST_F(ShapesTest, ConversationsAreTheSamePrompt) {
  const Json turns = Json::array({{{"role", "system"}, {"content", "Be brief."}},
                                  {{"role", "user"}, {"content", "Hello"}},
                                  {{"role", "assistant"}, {"content", "Yes."}},
                                  {{"role", "user"}, {"content", "Bye now"}}});
  const int64_t expected = count({{"messages", turns}}, MOE_ENDPOINT_TOKENIZE);
  const auto part = [](const char* type, const char* text) {
    return Json{{"type", type}, {"text", text}, {"cache_control", {{"type", "ephemeral"}}}};
  };
  const Json messages = Json::array(
      {{{"role", "user"}, {"content", Json::array({part("text", "Hello")})}},
       {{"role", "assistant"},
        {"content", Json::array({{{"type", "thinking"}, {"thinking", "x"}, {"signature", "y"}},
                                 {{"type", "redacted_thinking"}, {"data", "z"}},
                                 {{"type", "text"}, {"text", "Yes."}}})}},
       {{"role", "user"}, {"content", Json::array({part("text", "Bye "), part("text", "now")})}}});
  const Json system = Json::array({part("text", "Be "), part("text", "brief.")});
  EXPECT_EQ(count({{"system", system}, {"messages", messages}}), expected);
  EXPECT_EQ(count({{"system", "Be brief."}, {"messages", messages}}), expected);
  const Json input =
      Json::array({{{"role", "user"}, {"content", "Hello"}},
                   {{"type", "reasoning"}, {"id", "rs_1"}, {"summary", Json::array()}},
                   {{"type", "message"},
                    {"id", "msg_1"},
                    {"status", "completed"},
                    {"role", "assistant"},
                    {"content", Json::array({{{"type", "output_text"},
                                              {"text", "Yes."},
                                              {"annotations", Json::array()},
                                              {"logprobs", Json::array()}}})}},
                   {{"role", "user"},
                    {"content", Json::array({{{"type", "input_text"}, {"text", "Bye now"}}})}}});
  const Json response =
      ask({{"instructions", "Be brief."}, {"input", input}, {"max_output_tokens", 1}}, kResponses);
  EXPECT_EQ(response["usage"]["input_tokens"], expected);
}

TEST_F(ShapesTest, ThinkingIsSwitched) {
  const auto with = [&](const Json& thinking) {
    return count({{"messages", says("Hello")}, {"thinking", thinking}});
  };
  const int64_t plain = count({{"messages", says("Hello")}});
  EXPECT_EQ(with({{"type", "adaptive"}}), plain);
  EXPECT_EQ(with({{"type", "enabled"}, {"budget_tokens", 1024}}), plain);
  EXPECT_GT(with({{"type", "disabled"}}), plain);  // the template writes that it is over
  Json request = message_request();
  request["thinking"] = {{"type", "disabled"}};
  EXPECT_EQ(ask(request, kMessages)["content"][0]["type"], "text");
}

TEST_F(ShapesTest, StreamsThatFail) {
  const auto cancelled = [&](Json request, moe_endpoint endpoint) {
    Answer answer;
    request["stream"] = true;
    request["ignore_eos"] = true;
    answer.hook = [&](size_t n) {
      if (n == 2) moe_service_cancel(service_, answer.ticket.id);
    };
    submit(answer, request, endpoint);
    answer.wait();
    EXPECT_EQ(answer.status(), 499);
    return std::pair(answer.names().back(), answer.events().back());
  };
  const auto message = cancelled(message_request(), kMessages);
  EXPECT_EQ(message.first, "error");
  EXPECT_EQ(message.second, Json({{"type", "error"},
                                  {"error",
                                   {{"type", "invalid_request_error"},
                                    {"message", "the request was cancelled"},
                                    {"param", nullptr}}}}));
  const auto response = cancelled(response_request(), kResponses);
  EXPECT_EQ(response.first, "response.failed");
  EXPECT_EQ(response.second["response"]["status"], "failed");
  EXPECT_EQ(response.second["response"]["error"],
            Json({{"code", "server_error"}, {"message", "the request was cancelled"}}));
}

class StoriesShapes : public ServiceTest {};

TEST_F(StoriesShapes, TextsAreThoseOfTheModelAlone) {
  serve(slots(2));
  const Json chat = {{"messages", says("The dog")},
                     {"max_tokens", 12},
                     {"seed", 5},
                     {"temperature", 1.0},
                     {"top_k", 20}};
  Json response = chat;
  response.erase("messages");
  response.erase("max_tokens");
  response.update({{"input", "The dog"}, {"max_output_tokens", 12}});
  const std::string expected = alone(chat).text;
  Answer first, second;
  submit(first, chat, kMessages);
  submit(second, response, kResponses);
  EXPECT_EQ(first.wait()["content"][0]["text"], expected);
  EXPECT_EQ(second.wait()["output"][0]["content"][0]["text"], expected);
}

TEST_F(StoriesShapes, TokensFromTheCacheAreApart) {
  serve(slots(1));
  const Json request = {{"messages", says("The dog went home.")}, {"max_tokens", 2}};
  Answer first, second;
  submit(first, request, kMessages);
  const Json before = first.wait()["usage"];
  submit(second, request, kMessages);
  const Json after = second.wait()["usage"];
  EXPECT_EQ(before["cache_read_input_tokens"], 0);
  EXPECT_GT(after["cache_read_input_tokens"], 0);
  EXPECT_EQ(int64_t{after["input_tokens"]} + int64_t{after["cache_read_input_tokens"]},
            int64_t{before["input_tokens"]});
}

TEST_F(StoriesShapes, AFullContext) {
  serve(slots(1));
  Answer answer;
  submit(answer, {{"messages", says("The")}, {"max_tokens", 100000}, {"ignore_eos", true}},
         kMessages);
  EXPECT_EQ(answer.wait()["stop_reason"], "model_context_window_exceeded");
}

}  // namespace
}  // namespace moe_serve_test
