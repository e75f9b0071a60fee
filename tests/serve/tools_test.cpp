// SPDX-License-Identifier: MIT
// Tools: the model of tests/data/chat/tools says "Ok!", calls two tools, and answers "Yes." behind
// their results.

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

constexpr moe_endpoint kChat = MOE_ENDPOINT_CHAT;
const Json kForecast = Json::parse(R"({"type": "object", "properties": {
  "city": {"enum": ["Paris", "Rome"]}, "exact": {"type": "boolean"}},
  "required": ["city", "exact"], "additionalProperties": false})");
const Json kSum = Json::parse(R"({"type": "object", "properties": {"terms": {"type": "array",
  "items": {"type": "integer", "minimum": 1, "maximum": 9}, "minItems": 2, "maxItems": 2}},
  "required": ["terms"], "additionalProperties": false})");
constexpr const char* kWeather = R"({"city": "Zürich", "days": 2})";

class ToolsTest : public ScriptTest {
 protected:
  ToolsTest() : ScriptTest("tests/data/chat/tools") {}
  void SetUp() override {
    ScriptTest::SetUp();
    auto params = slots(1);
    params.name = "tools";
    serve(params);
  }
  Json ask(const Json& request, moe_endpoint endpoint = kChat, int status = 200) {
    return ServiceTest::ask(request, endpoint, status);
  }
  std::vector<Json> stream(Json request, moe_endpoint endpoint = kChat) {
    request["stream"] = true;
    Answer answer;
    submit(answer, request, endpoint);
    answer.wait();
    return answer.events();
  }
  static Json function(const char* name) {
    return {{"name", name},
            {"description", "d"},
            {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}};
  }
  static Json chat() {
    return {{"messages", says("Weather?")},
            {"temperature", 0},
            {"tools", Json::array({{{"type", "function"}, {"function", function("weather")}}})}};
  }
  static Json strict(const Json& parameters, const char* name = "forecast") {
    return {{"type", "function"},
            {"function", {{"name", name}, {"strict", true}, {"parameters", parameters}}}};
  }
  /// A call of forecast or sum whose arguments satisfy its schema.
  static void check_call(const Json& call) {
    const Json arguments = Json::parse(std::string(call["arguments"]));
    if (call["name"] == "sum") {
      ASSERT_EQ(arguments.size(), 1U) << call;
      ASSERT_EQ(arguments["terms"].size(), 2U) << call;
      for (const Json& term : arguments["terms"]) {
        EXPECT_TRUE(term.is_number_integer() && term >= 1 && term <= 9) << call;
      }
      return;
    }
    EXPECT_EQ(call["name"], "forecast");
    for (const auto& [key, value] : arguments.items()) EXPECT_TRUE(key == "city" || key == "exact");
    EXPECT_TRUE(arguments["city"] == "Paris" || arguments["city"] == "Rome") << call;
    EXPECT_TRUE(arguments["exact"].is_boolean()) << call;
  }
  static Json message() {
    Json tool = function("weather");
    tool["input_schema"] = tool["parameters"];
    tool.erase("parameters");
    return {{"messages", says("Weather?")},
            {"temperature", 0},
            {"max_tokens", 50},
            {"tools", Json::array({tool})}};
  }
  static Json response() {
    Json tool = function("weather");
    tool["type"] = "function";
    return {{"input", "Weather?"}, {"temperature", 0}, {"tools", Json::array({tool})}};
  }
  void refuses(const Json& request, const std::string& param, const std::string& why,
               moe_endpoint endpoint = kChat) {
    ServiceTest::refuses(request, endpoint, param, why);
  }
};

TEST_F(ToolsTest, AChatCallsAndGoesOn) {
  Json request = chat();
  const Json choice = ask(request)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& said = choice["message"];
  EXPECT_EQ(said["content"], "Ok!");
  ASSERT_EQ(said["tool_calls"].size(), 2U);
  EXPECT_EQ(said["tool_calls"][0]["type"], "function");
  EXPECT_EQ(said["tool_calls"][0]["function"],
            Json({{"name", "weather"}, {"arguments", kWeather}}));
  EXPECT_EQ(said["tool_calls"][1]["function"], Json({{"name", "clock"}, {"arguments", "{}"}}));
  EXPECT_NE(said["tool_calls"][0]["id"], said["tool_calls"][1]["id"]);
  request["messages"].push_back(said);
  for (const Json& call : said["tool_calls"]) {
    request["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "18"}});
  }
  const Json next = ask(request);
  EXPECT_EQ(next["choices"][0]["message"]["content"], "Yes.");
  EXPECT_EQ(next["choices"][0]["finish_reason"], "stop");
  // The model reads its own reply again as it wrote it, up to where the template writes less.
  EXPECT_GT(next["usage"]["prompt_tokens_details"]["cached_tokens"], 200);
}

TEST_F(ToolsTest, AStreamOfAChat) {
  std::string content;
  std::string finish;
  std::vector<Json> calls;
  for (const Json& event : stream(chat())) {
    const Json& choice = event["choices"][0];
    content += choice["delta"].value("content", "");
    for (const Json& delta : choice["delta"].value("tool_calls", Json::array())) {
      if (delta.contains("id")) calls.push_back(delta);
      const size_t index = delta["index"];
      ASSERT_EQ(index + 1, calls.size());
      if (!delta.contains("id"))
        calls.back()["function"]["arguments"] = delta["function"]["arguments"];
    }
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
  }
  EXPECT_EQ(content, "Ok!");
  EXPECT_EQ(finish, "tool_calls");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["function"], Json({{"name", "weather"}, {"arguments", kWeather}}));
  EXPECT_EQ(calls[1]["function"], Json({{"name", "clock"}, {"arguments", "{}"}}));
}

TEST_F(ToolsTest, SwitchesOfAChat) {
  Json request = chat();
  request["parallel_tool_calls"] = false;
  EXPECT_EQ(ask(request)["choices"][0]["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(ask(request)["choices"][0]["finish_reason"], "tool_calls");
  request = chat();
  request["tool_choice"] = "none";
  const Json none = ask(request)["choices"][0];
  EXPECT_FALSE(none["message"].contains("tool_calls"));
  EXPECT_EQ(none["finish_reason"], "stop");
  EXPECT_EQ(std::string(none["message"]["content"]).find("Ok!<tool_call>{"), 0U) << none;
  request["tool_choice"] = "auto";
  request["max_tokens"] = 6;  // in the middle of a call, which is text
  const Json cut = ask(request)["choices"][0];
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_FALSE(cut["message"].contains("tool_calls"));
  EXPECT_EQ(std::string(cut["message"]["content"]).find("Ok!<tool_call>{"), 0U) << cut;
  request["n"] = 2;
  request["temperature"] = 0.01;
  request["seed"] = 1;
  request["max_tokens"] = 50;
  const Json two = ask(request);
  for (const Json& choice : two["choices"]) {
    EXPECT_EQ(choice["message"]["tool_calls"].size(), 2U);
  }
  const auto id_of = [&](size_t choice) {
    return two["choices"][choice]["message"]["tool_calls"][0]["id"];
  };
  EXPECT_NE(id_of(0), id_of(1));
}

TEST_F(ToolsTest, Messages) {
  Json request = message();
  const Json said = ask(request, kMessages);
  EXPECT_EQ(said["stop_reason"], "tool_use");
  const Json& content = said["content"];
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[0], Json({{"type", "text"}, {"text", "Ok!"}}));
  EXPECT_EQ(content[1]["type"], "tool_use");
  EXPECT_EQ(content[1]["input"], Json::parse(kWeather));
  EXPECT_EQ(content[2]["name"], "clock");
  Json blocks = Json::array();
  for (const auto& event : stream(request, kMessages)) {
    if (event["type"] == "content_block_start") blocks.push_back(event["content_block"]);
    if (event["type"] != "content_block_delta") continue;
    Json& block = blocks[event["index"].get<size_t>()];
    if (block["type"] == "tool_use")
      block["input"] = Json::parse(std::string(event["delta"]["partial_json"]));
    if (block["type"] == "text")
      block["text"] = std::string(block["text"]) + std::string(event["delta"]["text"]);
  }
  EXPECT_EQ(blocks, content);
  request["messages"].push_back({{"role", "assistant"}, {"content", content}});
  Json results = Json::array();
  for (size_t i = 1; i < 3; ++i) {
    results.push_back({{"type", "tool_result"},
                       {"tool_use_id", content[i]["id"]},
                       {"is_error", false},
                       {"content", Json::array({{{"type", "text"}, {"text", "18"}}})}});
  }
  request["messages"].push_back({{"role", "user"}, {"content", results}});
  EXPECT_EQ(ask(request, kMessages)["content"][0]["text"], "Yes.");
  request["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  request["messages"] = says("Weather?");
  EXPECT_EQ(ask(request, kMessages)["content"].size(), 2U);
}

TEST_F(ToolsTest, Responses) {
  Json request = response();
  const Json said = ask(request, kResponses);
  EXPECT_EQ(said["status"], "completed");
  EXPECT_EQ(said["tools"], request["tools"]);
  EXPECT_EQ(said["tool_choice"], "auto");
  const Json& output = said["output"];
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(output[0]["content"][0]["text"], "Ok!");
  EXPECT_EQ(output[1]["type"], "function_call");
  EXPECT_EQ(output[1]["arguments"], kWeather);
  const std::vector<Json> events = stream(request, kResponses);
  EXPECT_EQ(events.back()["response"]["output"][1]["call_id"], output[1]["call_id"]);
  int n_done = 0;
  for (const Json& event : events)
    n_done += event["type"] == "response.function_call_arguments.done";
  EXPECT_EQ(n_done, 2);
  request["input"] = says("Weather?");
  for (const Json& item : output) request["input"].push_back(item);
  for (size_t i = 1; i < 3; ++i) {
    request["input"].push_back(
        {{"type", "function_call_output"}, {"call_id", output[i]["call_id"]}, {"output", "18"}});
  }
  EXPECT_EQ(ask(request, kResponses)["output"][0]["content"][0]["text"], "Yes.");
}

// Some templates write it, as FunctionGemma's does. Of equal ids the last call counts.
TEST_F(ToolsTest, AResultHasTheNameOfItsTool) {
  auto params = slots(1);
  params.chat_template =
      "{% for m in messages %}{{ m.role }}={{ m.name }}:{{ m.content or '' }};"
      "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }},"
      "{% endfor %}{% endfor %}";
  serve(params);
  const auto rendered = [&](Json request, moe_endpoint endpoint) {
    request["receipt"] = true;
    request[endpoint == kResponses ? "max_output_tokens" : "max_tokens"] = 1;
    const Json prompts = ask(request, endpoint)["receipt"]["prompts"];
    EXPECT_EQ(prompts.size(), 1U);
    return decode(prompts[0]);
  };
  const auto call = [](const char* id, const char* name) {
    return Json{{"id", id}, {"type", "function"}, {"function", {{"name", name}}}};
  };
  const auto calls = [](const Json& list) {
    return Json{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", list}};
  };
  const auto result = [](const char* id) {
    return Json{{"role", "tool"}, {"tool_call_id", id}, {"content", "18"}};
  };
  Json named = result("b");
  named["name"] = "given";
  const Json turns = {{{"role", "user"}, {"content", "?"}},
                      calls({call("a", "sum"), call("b", "clock")}),
                      result("b"),
                      result("a"),
                      named,
                      result("none"),
                      calls(Json::array({call("a", "weather")})),
                      result("a")};
  EXPECT_EQ(rendered({{"messages", turns}}, kChat),
            "user=:?;assistant=:;sum{},clock{},tool=clock:18;tool=sum:18;tool=given:18;tool=:18;"
            "assistant=:;weather{},tool=weather:18;");
  Json block = {{"type", "tool_use"}, {"id", "a"}, {"name", "sum"}, {"input", Json::object()}};
  Json answer = {{"type", "tool_result"}, {"tool_use_id", "a"}, {"content", "18"}};
  const Json messages = {{{"role", "user"}, {"content", "?"}},
                         {{"role", "assistant"}, {"content", Json::array({block})}},
                         {{"role", "user"}, {"content", Json::array({answer})}}};
  EXPECT_EQ(rendered({{"messages", messages}}, kMessages),
            "user=:?;assistant=:;sum{},tool=sum:18;");
  block = {{"type", "function_call"}, {"call_id", "a"}, {"name", "sum"}, {"arguments", "{}"}};
  answer = {{"type", "function_call_output"}, {"call_id", "a"}, {"output", "18"}};
  EXPECT_EQ(rendered({{"input", {says("?")[0], block, answer}}}, kResponses),
            "user=:?;assistant=:;sum{},tool=sum:18;");
  for (const Json& bad :
       {Json(5), Json{{"id", 5}, {"function", 5}}, Json{{"function", {{"name", 5}}}}}) {
    refuses({{"messages", {turns[0], calls(Json::array({bad})), result("5")}}}, "messages[1]",
            "tool_calls[0]");
  }
}

// The model would say "Ok!" first, and call a second tool, which there is not.
TEST_F(ToolsTest, CallsThatAreAskedFor) {
  Json request = chat();
  request["tools"] = Json::array({strict(kForecast), strict(kSum, "sum")});
  request["tool_choice"] = "required";
  request["max_tokens"] = 400;
  request["parallel_tool_calls"] = false;
  const Json any = ask(request)["choices"][0];
  EXPECT_EQ(any["finish_reason"], "tool_calls");
  EXPECT_TRUE(any["message"]["content"].is_null() || any["message"]["content"] == "") << any;
  ASSERT_EQ(any["message"]["tool_calls"].size(), 1U);
  check_call(any["message"]["tool_calls"][0]["function"]);
  for (const char* name : {"forecast", "sum"}) {
    request["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
    for (const bool strict : {true, false}) {
      for (Json& tool : request["tools"]) tool["function"].erase("strict");
      if (strict) request["tools"][0]["function"]["strict"] = true;
      const Json choice = ask(request)["choices"][0];
      ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U) << choice;
      EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], name);
      check_call(choice["message"]["tool_calls"][0]["function"]);
      std::vector<Json> streamed;
      for (const Json& event : stream(request)) {
        for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
          if (call.contains("id")) streamed.push_back(call);
        }
      }
      ASSERT_EQ(streamed.size(), 1U);
      EXPECT_EQ(streamed[0]["id"], choice["message"]["tool_calls"][0]["id"]);
      EXPECT_EQ(streamed[0]["function"]["name"], name);
    }
  }
}

TEST_F(ToolsTest, CallsThatAreAskedForInOtherApis) {
  Json tool = strict(kForecast)["function"];
  tool["input_schema"] = tool["parameters"];
  tool.erase("parameters");
  Json request = message();
  request["max_tokens"] = 400;
  request["tools"] = Json::array({tool});
  for (const Json& choice : {Json{{"type", "any"}, {"disable_parallel_tool_use", true}},
                             Json{{"type", "tool"}, {"name", "forecast"}}}) {
    request["tool_choice"] = choice;
    const Json said = ask(request, kMessages);
    EXPECT_EQ(said["stop_reason"], "tool_use") << said;
    ASSERT_EQ(said["content"].size(), 1U) << said;
    EXPECT_EQ(said["content"][0]["name"], "forecast");
    check_call({{"name", "forecast"}, {"arguments", said["content"][0]["input"].dump()}});
  }
  Json asked = response();
  Json flat = strict(kForecast)["function"];
  flat["type"] = "function";
  asked["tools"] = Json::array({flat});
  asked["max_output_tokens"] = 400;
  asked["parallel_tool_calls"] = false;
  for (const Json& choice : {Json("required"), Json{{"type", "function"}, {"name", "forecast"}}}) {
    asked["tool_choice"] = choice;
    const Json said = ask(asked, kResponses);
    ASSERT_EQ(said["output"].size(), 1U) << said;
    EXPECT_EQ(said["output"][0]["type"], "function_call");
    EXPECT_EQ(said["tool_choice"], choice);
    check_call(said["output"][0]);
  }
}

// The text is the model's; its call of "weather" has other arguments, and "clock" does not exist.
TEST_F(ToolsTest, StrictCallsInText) {
  Json request = chat();
  request["tools"] = Json::array({strict(kForecast, "weather")});
  request["max_tokens"] = 400;
  const Json prompt = ask(request)["usage"]["prompt_tokens"];
  const Json strict_one = ask(request)["choices"][0];
  EXPECT_EQ(std::string(strict_one["message"]["content"]).substr(0, 3), "Ok!") << strict_one;
  ASSERT_GE(strict_one["message"]["tool_calls"].size(), 1U) << strict_one;
  for (const Json& call : strict_one["message"]["tool_calls"]) {
    EXPECT_EQ(call["function"]["name"], "weather");
    check_call({{"name", "forecast"}, {"arguments", call["function"]["arguments"]}});
  }
  // The model does not see "strict".
  request["tools"][0]["function"].erase("strict");
  const Json loose = ask(request);
  EXPECT_EQ(loose["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(loose["choices"][0]["message"]["tool_calls"][1]["function"]["name"], "clock");
  request["tools"][0]["function"]["strict"] = true;
  request["tools"][0]["function"]["parameters"] = function("weather")["parameters"];
  request["tools"][0]["function"]["parameters"]["properties"]["days"] = {{"type", "integer"}};
  request["tools"].push_back(strict({{"type", "object"}}, "clock"));
  const Json same = ask(request)["choices"][0]["message"];
  ASSERT_EQ(same["tool_calls"].size(), 2U);  // nothing was in its way
  EXPECT_EQ(same["tool_calls"][0]["function"]["arguments"], kWeather);
  EXPECT_EQ(same["content"], "Ok!");
}

TEST_F(ToolsTest, WhatIsRefused) {
  const auto with = [](Json request, const char* key, const Json& value) {
    request[key] = value;
    return request;
  };
  refuses(with(chat(), "tool_choice", "some"), "tool_choice", "expected auto, none, required");
  refuses(with(chat(), "tool_choice", {{"type", "function"}, {"function", {{"name", "wind"}}}}),
          "tool_choice.function.name", "the name of a tool");
  refuses(with(chat(), "tool_choice", {{"type", "allowed_tools"}}), "tool_choice", "allowed_tools");
  for (const Json& choice : {Json(5), Json(""), Json::array(), Json(true), Json("function"),
                             Json{{"type", "auto"}}, Json{{"type", ""}}}) {
    refuses(with(chat(), "tool_choice", choice), "tool_choice", "expected ");
    refuses(with(response(), "tool_choice", choice), "tool_choice", "expected ", kResponses);
  }
  for (const Json& choice : {Json(5), Json(""), Json::array(), Json(true), Json{{"type", ""}}}) {
    refuses(with(message(), "tool_choice", choice), "tool_choice", "expected ", kMessages);
  }
  refuses(with(chat(), "tool_choice", {{"type", "none"}, {"x", 1}}), "tool_choice.x", "unknown");
  for (const char* type : {"auto", "any", "none"}) {
    refuses(with(message(), "tool_choice", {{"type", type}, {"name", "weather"}}),
            "tool_choice.name", "unknown", kMessages);
  }
  refuses(with(chat(), "tools",
               Json::array({strict({{"type", "object"}, {"unevaluatedItems", true}})})),
          "tools", "tools[0].function.parameters: JSON schema: #/unevaluatedItems: ");
  // The place is told in the words of the API, and where no reply is asked for no form is needed.
  Json bad = strict({{"type", "object"}, {"unevaluatedItems", true}})["function"];
  bad["type"] = "function";
  refuses(with(response(), "tools", Json::array({bad})), "tools",
          "tools[0].parameters: JSON schema: #/unevaluatedItems: ", kResponses);
  bad["input_schema"] = bad["parameters"];
  bad.erase("parameters");
  bad.erase("type");
  const Json counted = with(message(), "tools", Json::array({bad}));
  refuses(counted, "tools", "tools[0].input_schema: JSON schema: #/unevaluatedItems: ", kMessages);
  Json count = counted;
  count.erase("temperature");
  count.erase("max_tokens");
  EXPECT_GT(ask(count, MOE_ENDPOINT_COUNT_TOKENS)["input_tokens"], 0);
  Json forced = with(chat(), "tools",
                     Json::array({strict({{"type", "object"}, {"unevaluatedItems", true}})}));
  forced["tool_choice"] = "required";
  forced["tools"][0]["function"].erase("strict");
  refuses(forced, "tools", "with \"strict\": false they are any object");
  refuses(with(chat(), "tools", Json::array({strict({{"type", "string"}})})), "tools",
          "tools[0].function.parameters: no object satisfies");
  refuses(with(chat(), "tools",
               Json::array({{{"type", "function"}, {"function", {{"name", "a"}, {"strict", 5}}}}})),
          "tools[0].function.strict", "true or false");
  refuses({{"messages", says("a")}, {"tool_choice", "required"}}, "tool_choice",
          "only with 'tools'");
  refuses(
      with(chat(), "tools",
           Json::array({{{"type", "function"}, {"function", {{"name", "a"}, {"parameters", 5}}}}})),
      "tools[0].function.parameters", "an object");
  refuses(
      with(chat(), "tools", Json::array({{{"type", "function"}, {"function", {{"name", ""}}}}})),
      "tools[0].function.name", "a name");
  refuses(with(chat(), "tools", Json::array({{{"type", "custom"}}})), "tools[0].type",
          "no tools of its own");
  refuses({{"messages", says("a")}, {"tool_choice", "auto"}}, "tool_choice", "only with 'tools'");
  Json constrained = chat();
  constrained["response_format"] = {{"type", "json_object"}};
  refuses(constrained, "response_format", "not together with 'tools'");
  refuses(with(message(), "tool_choice", {{"type", "tool"}, {"name", "wind"}}), "tool_choice.name",
          "the name of a tool", kMessages);
  refuses(with(message(), "tool_choice", {{"type", "all"}}), "tool_choice",
          "expected auto, none, any or a tool", kMessages);
  refuses(with(message(), "tools", Json::array({{{"name", "a"}}})), "tools[0].input_schema",
          "missing", kMessages);
  refuses(with(response(), "tools", Json::array({{{"type", "web_search"}}})), "tools[0].type",
          "no tools of its own", kResponses);
  const Json call = {
      {"id", "c"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{bad"}}}};
  Json history = says("a");
  history.push_back({{"role", "assistant"}, {"tool_calls", Json::array({call})}});
  refuses({{"messages", history}}, "messages[1]", "a JSON object");
  refuses({{"messages", Json::array({{{"role", "tool"}, {"content", "a"}}})}},
          "messages[0].tool_call_id", "missing");
}

}  // namespace
}  // namespace moe_serve_test
