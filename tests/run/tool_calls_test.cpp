// SPDX-License-Identifier: MIT
// Calls of tools in replies: those that templates of real models wrote (tests/parity/tool_calls.py
// --write), other forms of the formats, and what is no call.

#include <gtest/gtest.h>

#include <map>

#include "formats/import/json.h"
#include "src/text/chat/tools/argument.h"
#include "src/text/chat/tools/message.h"
#include "tests/run/reply_calls.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "f", "parameters": {
  "type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": ["boolean", "null"]},
  "o": {"anyOf": [{"type": "object"}, {"type": "array"}]}, "e": {"enum": ["5", 6]}}}}}])";

GivenReply given(const std::string& format, const std::string& text,
                 const std::vector<std::string>& specials = {}) {
  return {
      .chat_template = templates().at(format), .tools = kTools, .specials = specials, .text = text};
}

const std::vector<std::string>& harmony() {
  static const std::vector<std::string> tokens = {"<|start|>",   "<|end|>",  "<|channel|>",
                                                  "<|message|>", "<|call|>", "<|constrain|>"};
  return tokens;
}

/// The same however the reply is cut, as "text[name arguments]text".
std::string shown(const GivenReply& reply) {
  const FoundReply whole = find_calls(reply, 0, 1 << 22);
  for (size_t longest = 1; longest < 40; longest += longest / 4 + 1) {
    EXPECT_EQ(find_calls(reply, longest, longest), whole) << reply.text << ", cut by " << longest;
  }
  std::string out = whole.content;
  for (const std::string& call : whole.calls) {
    const Json json = parse_json(call, "call");
    const size_t at = call.find("\"arguments\": ");
    out += "[" + json.at("name").get<std::string>() + " " +
           call.substr(at + 13, call.size() - at - 14) + "]";
  }
  if (!whole.thinking.empty()) out += "(" + whole.thinking + ")";
  return out;
}

TEST(ToolCalls, AsTemplatesWriteThem) {
  const Json golden = read_json_file("tests/data/chat/tool_calls.json");
  std::map<std::string, int> seen;
  for (const Json& c : golden.at("cases")) {
    const auto format = c.at("format").get<std::string>();
    GivenReply reply = given(format, c.at("text").get<std::string>());
    reply.tools = golden.at("tools").get<std::string>();
    for (const Json& s : c.at("specials")) reply.specials.push_back(s.get<std::string>());
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const FoundReply found = find_calls(reply, seed, seed % 9 + 1);
      EXPECT_EQ(found.content, c.at("content").get<std::string>()) << reply.text;
      EXPECT_EQ(found.order, c.at("order").get<std::string>()) << reply.text;
      ASSERT_EQ(found.calls.size(), c.at("calls").size()) << reply.text;
      for (size_t i = 0; i < found.calls.size(); ++i) {
        EXPECT_EQ(found.calls[i], c.at("calls")[i].get<std::string>());
      }
    }
    ++seen[format];
  }
  for (const char* format : {"cohere", "deepseek", "gemma4", "glm", "gpt-oss", "hermes", "kimi-k2",
                             "llama3", "minimax-m2", "mistral", "nemotron", "qwen3-coder"}) {
    EXPECT_GE(seen[format], 4) << format;
  }
}

// A reply may end anywhere: what is there is a call or text.
TEST(ToolCalls, NothingIsLostWhereAReplyEnds) {
  const Json golden = read_json_file("tests/data/chat/tool_calls.json");
  for (const Json& c : golden.at("cases")) {
    const auto format = c.at("format").get<std::string>();
    const bool all_text = c.at("text").get<std::string>().find("<think>") == std::string::npos;
    if (format == "gpt-oss" || !all_text) continue;  // headers and thinking are apart
    GivenReply reply = given(format, c.at("text").get<std::string>());
    reply.tools = golden.at("tools").get<std::string>();
    const std::string text = reply.text;
    for (size_t n = 0; n < text.size(); ++n) {
      if ((static_cast<uint8_t>(text[n]) & 0xC0) == 0x80) continue;
      reply.text = text.substr(0, n);
      const FoundReply found = find_calls(reply, n, 7);
      if (found.calls.empty()) {
        EXPECT_EQ(found.content, reply.text);
      }
      EXPECT_LE(found.calls.size(), c.at("calls").size());
    }
  }
}

TEST(ToolCalls, TemplatesAreRecognised) {
  for (const auto& [name, text] : templates()) {
    const ToolFormat* format = tool_format(text);
    ASSERT_NE(format, nullptr) << name;
    EXPECT_EQ(format->name, name);
    EXPECT_NE(std::string(tool_format_names()).find(name), std::string::npos);
  }
  EXPECT_EQ(tool_format("{{ messages }}"), nullptr);
  EXPECT_EQ(tool_format("]<]minimax[>[<tool_call>"), nullptr);
}

TEST(ToolCalls, OtherForms) {
  const struct {
    const char* format;
    const char* text;
    const char* found;
  } cases[] = {
      {"mistral",
       R"([TOOL_CALLS][{"name": "f", "arguments": {"n": 1}, "id": "abcdefghi"}, {"name": "g", "arguments": {}}])",
       R"([f {"n": 1}][g {}])"},
      {"mistral", R"(Hm.[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{})",
       R"(Hm.[f {"n": 1}][g {}])"},
      {"mistral", R"([TOOL_CALLS]f{"n": 1})", R"([f {"n": 1}])"},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
       "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       R"([f {"n": 1}][g {}])"},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": "
       "1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       R"([f {"n": 1}])"},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>functions.g:0<｜tool▁sep｜>{}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "[functions.g:0 {}]"},  // that is a name; Kimi's has a prefix
      {"llama3", R"({"name": "f", "parameters": {"s": "x"}})", R"([f {"s": "x"}])"},
      {"llama3",
       R"(  {"type": "function", "name": "f", "parameters": {}}; {"name": "f", "parameters": {"n": 2}})",
       R"([f {}][f {"n": 2}])"},
      {"llama3", R"(<|python_tag|>{"name": "other", "parameters": {}})", "[other {}]"},
      {"granite",
       R"(<|tool_call|>[{"name": "f", "arguments": {"n": 1}}, {"name": "g", "arguments": {}}])",
       R"([f {"n": 1}][g {}])"},
      {"granite", R"(a <|tool_call|>[{"name": "f", "arguments": {}}] b)", "a  b[f {}]"},
      {"hermes", R"(<tool_call>{"name": "f", "arguments": "{\"n\": 1}"}</tool_call>)",
       R"([f {"n": 1}])"},
      {"hermes", "a\n\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>\n\nb", "a\n\n\n\nb[f {}]"},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}</tool_call> \n",
       R"([f {"s": "</tool_call>"}])"},
      {"hermes", "<tool_call>no <tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>no[f {}]"},
      {"hermes", "<tool_call>{\"name\": \"f\"}", "[f {}]"},  // it ends before the mark
      {"qwen3-coder",
       "<tool_call>\n<function=f>\n<parameter=s>\n\n5\n</parameter>\n<parameter=n>\n5\n</"
       "parameter>\n<parameter=b>\nTrue\n"
       "</parameter>\n<parameter=o>\n[1]\n</parameter>\n</function>\n</tool_call>",
       R"([f {"s": "\n5", "n": 5, "b": true, "o": [1]}])"},
      {"qwen3-coder",
       "<tool_call><function=f><parameter=s>a</parameter> b</parameter></function></tool_call>",
       R"([f {"s": "a</parameter> b"}])"},
      {"seed-oss",
       "<seed:tool_call>\n<function=f>\n<parameter=s>a\n</parameter>\n</function>\n</"
       "seed:tool_call>",
       R"([f {"s": "a\n"}])"},
      {"glm", "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n</tool_call>",
       R"([f {"n": 5}])"},
      {"glm", "<tool_call>f<arg_key>unknown</arg_key><arg_value>5</arg_value></tool_call>",
       R"([f {"unknown": 5}])"},
      {"glm", "<tool_call>f</tool_call>", "[f {}]"},
      {"functiongemma",
       "<start_function_call>call:f{s:<escape>a, "
       "{b}<escape>,n:5,b:true,o:{x:[1,None]}}<end_function_call>",
       R"([f {"s": "a, {b}", "n": 5, "b": true, "o": {"x": [1, null]}}])"},
      {"gemma4", "<|tool_call>call:f{s:<|\"|><tool_call|><|\"|>}<tool_call|>",
       R"([f {"s": "<tool_call|>"}])"},
      {"kimi-k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<"
       "|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "[f {}]"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(shown(given(c.format, c.text)), c.found) << c.format << ": " << c.text;
}

TEST(ToolCalls, Channels) {
  const auto found = [](const std::string& text) {
    return shown(given("gpt-oss", text, harmony()));
  };
  EXPECT_EQ(found("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
                  "to=functions.f "
                  "<|constrain|>json<|message|>{\"n\": 1}<|call|>"),
            R"([f {"n": 1}](hm))");
  EXPECT_EQ(found(" to=functions.f<|channel|>commentary json<|message|>{\"n\": 1}"),
            R"([f {"n": 1}])");
  EXPECT_EQ(found("<|start|>assistant to=functions.f<|channel|>commentary<|message|><|call|>"),
            "[f {}]");
  EXPECT_EQ(found("<|channel|>commentary to=functions.f<|message|>{\"n\": "),
            "to=functions.f {\"n\": ");
  EXPECT_EQ(
      found("<|channel|>commentary "
            "to=functions.f<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>b"),
      "to=functions.f nob");
  EXPECT_EQ(found("<|channel|>commentary<|message|>I will "
                  "look.<|end|><|start|>assistant<|channel|>final<|message|>b"),
            "b(I will look.)");
  // A name that is not kept whole names no tool.
  const std::string long_name(250, 'f');
  EXPECT_EQ(found("<|channel|>commentary to=functions." + long_name + "<|message|>{}"), "({})");
  EXPECT_EQ(found(" to=nobody"), " to=nobody");
  EXPECT_EQ(found("plain"), "plain");
}

TEST(ToolCalls, WhatIsNoneIsText) {
  const std::pair<const char*, const char*> cases[] = {
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\nb\"}}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{bad\"}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1e999}}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"\\ud800\"}}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\"}} </tool_call> x"},
      {"hermes", "<tool_call>[]</tool_call>"},
      {"hermes", " <tool_cal"},
      {"hermes", "<tool_call>{\"name\": \"f\", "},
      {"llama3", "{\"name\": \"unknown\", \"parameters\": {}}"},
      {"llama3", "{\"city\": \"x\"}"},
      {"llama3", "say {\"name\": \"f\", \"parameters\": {}}"},
      {"llama3", "<|python_tag|>brave_search.call(query=\"x\")"},
      {"mistral", "[TOOL_CALLS]"},
      {"mistral", "[TOOL_CALLS]f[ARGS]no"},
      {"mistral", "[TOOL_CALLS] what is that?"},
      {"deepseek", "<｜tool▁calls▁begin｜> x"},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>[1]<｜tool▁call▁end｜>"},
      {"kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>"},
      {"qwen3-coder", "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call>"},
      {"qwen3-coder", "<tool_call>\n<function=>\n</function>\n</tool_call>"},
      {"glm", "<tool_call><arg_key>a</arg_key>"},
      {"glm", "<tool_call>f<arg_key>a</arg_key>x"},
      {"minimax-m2", "<minimax:tool_call>\n</minimax:tool_call>"},
      {"gemma4", "<|tool_call>call:f{s:x}<tool_call|>"},
      {"gemma4", "<|tool_call>call:{}<tool_call|>"},
      {"gemma4", "<|tool_call>f{}<tool_call|>"},
  };
  for (const auto& [format, text] : cases) EXPECT_EQ(shown(given(format, text)), text) << format;
}

// White space that no call has is given up, not read again with each piece.
TEST(ToolCalls, SpaceInACallWithoutAMark) {
  const std::string most(ToolCallParser::kMostBareSpace, ' ');
  const std::string rest = R"("name": "f", "parameters": {}})";
  const auto found = [](const std::string& text) { return shown(given("llama3", text)); };
  EXPECT_EQ(found("{" + most + rest), "[f {}]");
  EXPECT_EQ(found("{" + most + "\n" + rest), "{" + most + "\n" + rest);
  EXPECT_EQ(found("{" + rest + ";" + most + "{" + rest), "[f {}][f {}]");
  EXPECT_EQ(found("{" + rest + ";" + most + "\n{" + rest), ";" + most + "\n{" + rest + "[f {}]");
  const std::string long_space(20000, ' ');
  EXPECT_EQ(found("{" + long_space), "{" + long_space);
}

// A chat must be able to take every call back: what is nested deeper is text.
TEST(ToolCalls, NestedAsDeepAsAMessageMayBe) {
  const auto nested = [](const char* open, const char* close, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += open;
    for (size_t i = 0; i < n; ++i) text += close;
    return text;
  };
  const struct {
    const char* format;
    const char* begin;  // up to the value of the argument o
    const char* end;
  } cases[] = {{"gemma4", "<|tool_call>call:f{o:", "}<tool_call|>"},
               {"glm", "<tool_call>f<arg_key>o</arg_key><arg_value>", "</arg_value></tool_call>"},
               {"hermes", R"(<tool_call>{"name": "f", "arguments": {"o": )", "}}</tool_call>"},
               {"mistral", R"([TOOL_CALLS]f[ARGS]{"o": )", "}"}};
  for (const auto& c : cases) {
    for (const size_t n : {59, 60, 62, 63, 64, 65}) {
      const std::string text = c.begin + nested("[", "]", n) + c.end;
      const FoundReply found = find_calls(given(c.format, text), 0, 1 << 20);
      const bool as_string = std::string(c.format) == "glm" && n > 64;  // as no JSON of its own
      ASSERT_EQ(found.calls.size(), n == 59 || as_string ? 1U : 0U) << c.format << ' ' << n;
      if (found.calls.empty()) {
        EXPECT_EQ(found.content, text);
        continue;
      }
      const std::string call = found.calls[0];
      const std::string arguments = call.substr(call.find("\"arguments\": "));
      MessageParts parts(system_allocator());
      EXPECT_EQ(
          read_message(R"({"tool_calls": [{"function": {"name": "f", )" + arguments + "}]}", parts)
              .code(),
          MOE_OK)
          << call;
    }
  }
}

// More than 1 MiB is no call, in whatever pieces it comes; what follows it is read again.
TEST(ToolCalls, WithoutBoundNothingIsHeld) {
  const std::string filler(ToolCallParser::kMostCallBytes, 'x');
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  GivenReply reply = given("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"" +
                                         filler + "\"}}</tool_call>" + call);
  const FoundReply whole = find_calls(reply, 0, 1 << 22);
  EXPECT_EQ(whole.calls.size(), 1U);
  EXPECT_EQ(whole.content, reply.text.substr(0, reply.text.size() - call.size()));
  EXPECT_EQ(find_calls(reply, 1, 4000), whole);
  std::string openings;
  for (int i = 0; i < 20000; ++i) openings += "<tool_call>{\"name\"";
  EXPECT_EQ(shown(given("hermes", openings)), openings);
}

TEST(ToolCalls, OutOfMemory) {
  const std::string text = "Hm.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"" +
                           std::string(300, 'x') + "\"}}</tool_call>";
  int n_failed = 0;
  for (size_t n = 0;; ++n) {
    const FailingAllocator failing(n);
    ToolCallParser parser(*tool_format(templates().at("hermes")), kTools, 1, failing.get());
    Status status;
    for (size_t i = 0; i < text.size() && status.ok(); i += 9)
      status = parser.push(std::string_view(text).substr(i, 9));
    if (status.ok()) status = parser.finish();
    if (status.ok()) break;
    EXPECT_EQ(status.code(), MOE_ERR_MEMORY);
    ++n_failed;
  }
  EXPECT_GT(n_failed, 2);
}

TEST(ToolCalls, ArgumentsByTheirTypes) {
  const auto written = [](const char* key, std::string_view text) {
    String out;
    check(write_argument(argument_types(kTools, "f", key), text, out));
    return std::string(out.view());
  };
  EXPECT_EQ(written("s", "5"), "\"5\"");
  EXPECT_EQ(written("s", "null"), "\"null\"");
  EXPECT_EQ(written("n", " 5\n"), "5");
  EXPECT_EQ(written("n", "five"), "\"five\"");
  EXPECT_EQ(written("b", "False"), "false");
  EXPECT_EQ(written("b", "None"), "null");
  EXPECT_EQ(written("o", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(written("o", "{'a': 1}"), "\"{'a': 1}\"");
  EXPECT_EQ(written("e", "6"), "6");
  EXPECT_EQ(written("unknown", "[1]"), "[1]");
  EXPECT_EQ(written("unknown", "\"x\""), "\"\\\"x\\\"\"");
}

// An option without a type, such as a reference to a class, allows objects too.
TEST(ToolCalls, ArgumentsOfAlternatives) {
  const auto written = [](const std::string& schema, std::string_view text) {
    const std::string tools =
        R"([{"name": "f", "parameters": {"properties": {"a": )" + schema + "}}}]";
    String out;
    check(write_argument(argument_types(tools, "f", "a"), text, out));
    return std::string(out.view());
  };
  const std::string_view paris = R"({"city": "Paris"})";
  const std::string quoted = R"("{\"city\": \"Paris\"}")";
  for (const char* name : {"anyOf", "oneOf"}) {
    const std::string optional =
        std::string("{\"") + name + R"(": [{"$ref": "#/$defs/Address"}, {"type": "null"}]})";
    EXPECT_EQ(written(optional, paris), paris);
    EXPECT_EQ(written(optional, "None"), "null");
    EXPECT_EQ(written(optional, "Paris"), "\"Paris\"");
  }
  EXPECT_EQ(written(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", paris), quoted);
  EXPECT_EQ(written(R"({"allOf": [{"$ref": "#/$defs/Address"}]})", paris), paris);
  EXPECT_EQ(written(R"({"allOf": [{"$ref": "#/$defs/Name"}, {"type": "string"}]})", paris), quoted);
  EXPECT_EQ(written(R"({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]})", "5"),
            "\"5\"");
}

// Programs write names of other languages with escapes, models without.
TEST(ToolCalls, NamesWithEscapes) {
  GivenReply reply = given(
      "glm", "<tool_call>größe<arg_key>straße😀</arg_key><arg_value>5</arg_value></tool_call>");
  reply.tools = R"([{"type": "function", "f\u0075nction": {"name": "gr\u00f6\u00dFe", "parameters":
    {"properties": {"stra\u00dfe\uD83D\uDE00": {"type": "string"}}}}}])";
  EXPECT_EQ(check_tools(reply.tools).code(), MOE_OK);
  EXPECT_EQ(shown(reply), R"([größe {"straße😀": "5"}])");
  reply.chat_template = templates().at("llama3");
  reply.text = R"({"n\u0061me": "größe", "parameters": {}})";
  EXPECT_EQ(shown(reply), reply.text);  // a call without a mark begins with "name" as it is
  reply.text = R"({"name": "größe", "p\u0061rameters": {"a": "\/"}})";
  EXPECT_EQ(shown(reply), R"([größe {"a": "\/"}])");
  MessageParts parts(system_allocator());
  check(read_message(R"({"r\u006fle": "a", "tool\u005fcalls": [{"functi\u006Fn": {"name": "f",
    "\u0061rguments": "{}"}}]})",
                     parts));
  EXPECT_EQ(parts.role.view(), "a");
  EXPECT_TRUE(parts.calls);
  EXPECT_NE(parts.members.view().find(": {}"), std::string_view::npos) << parts.members.view();
}

TEST(ToolCalls, MessagesAndTools) {
  MessageParts parts(system_allocator());
  check(read_message(
      R"({"role": "assistant", "content": null, "audio": null, "tool_calls": [{"id": "c", "type": "function",
    "function": {"name": "f", "arguments": "{\"s\": \"\u00e9\"}"}}], "name": "x"})",
      parts));
  EXPECT_TRUE(parts.calls);
  EXPECT_TRUE(parts.no_content);
  EXPECT_EQ(
      parts.members.view(),
      R"({"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"s": "é"}}}], "name": "x"})");
  String texts;
  check(rewrite_calls(parts.members.view(), true, texts));
  EXPECT_NE(texts.view().find(R"("arguments": "{\"s\": \"é\"}")"), std::string_view::npos)
      << texts.view();
  const std::pair<const char*, const char*> bad[] = {
      {R"([])", "expected an object"},
      {R"({"role": 5})", "message.role"},
      {R"({"role": "a", "content": ["x"]})", "message.content"},
      {R"({"role": "a", "tool_calls": 5})", "tool_calls: expected a list"},
      {R"({"role": "a", "tool_calls": [{}]})", "tool_calls[0].function"},
      {R"({"role": "a", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]})",
       "tool_calls[0].function.arguments"},
      {R"({"role": "a", "tool_calls": [{"function": {"arguments": {}}}]})",
       "tool_calls[0].function.name"}};
  for (const auto& [json, why] : bad) {
    MessageParts none(system_allocator());
    const Status status = read_message(json, none);
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT) << json;
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
  }
  EXPECT_EQ(check_tools(kTools).code(), MOE_OK);
  for (const char* tools : {"{}", "[5]", "[{}]", R"([{"type": "x", "function": {"name": "f"}}])",
                            R"([{"function": {"name": ""}}])", "[",
                            R"([{"function": {"name": "f", "parameters": []}}])"}) {
    EXPECT_EQ(check_tools(tools).code(), MOE_ERR_ARGUMENT) << tools;
  }
  EXPECT_EQ(check_tools(R"([{"function": {"name": "f", "strict": "yes"}}])").code(),
            MOE_ERR_ARGUMENT);
  constexpr const char* kStrict =
      R"([{"type": "function", "function": {"strict": true, "name": "f"}}, {"function": {"name": "g"}}])";
  EXPECT_EQ(check_tools(kStrict).code(), MOE_OK);
  EXPECT_TRUE(any_strict(kStrict));
  EXPECT_FALSE(any_strict(kTools));
  String loose;
  check(write_without_strict(kStrict, loose));
  EXPECT_EQ(loose.view(),
            R"([{"type": "function", "function": {"name": "f"}}, {"function": {"name": "g"}}])");
}

}  // namespace
}  // namespace moe
