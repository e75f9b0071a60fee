// SPDX-License-Identifier: MIT
// The input is a format (its first byte), how a reply is cut (the second), and the reply. Calls are
// valid JSON, and they and the text are the same as of the whole reply; without calls nothing of it
// is lost.

#include <string>

#include "src/text/chat/json/scanner.h"
#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/message.h"
#include "src/text/chat/tools/parser.h"

namespace {

using namespace moe;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}}])";
constexpr const char* kTemplates[] = {"<|channel|>functions.",
                                      "<\uFF5Ctool\u2581calls\u2581begin\uFF5C>",
                                      "<|tool_call_argument_begin|>",
                                      "<minimax:tool_call>",
                                      "<arg_key>",
                                      "<function=<parameter=",
                                      "<|tool_call>call:",
                                      "<start_function_call>",
                                      "[TOOL_CALLS]",
                                      "<|tool_call|>",
                                      "<tool_call>",
                                      "{\"name\": function name, \"parameters\""};

struct Found {
  std::string text;
  std::string calls;
  bool operator==(const Found&) const = default;
};

void take(const ToolCallParser& parser, Found& found) {
  for (size_t i = 0; i < parser.n_events(); ++i) {
    const ToolCallParser::Event event = parser.event(i);
    if (event.call) {
      require(json::is_valid(event.text) && json::is_object(json::member(event.text, "arguments")));
      require(json::is_string(json::member(event.text, "name")));
    }
    (event.call ? found.calls : found.text) += event.text;
  }
}

Found found_in(const ToolFormat& format, std::string_view reply, size_t step) {
  ToolCallParser parser(format, kTools, 3, system_allocator());
  Found found;
  const bool channel = format.syntax == ToolSyntax::kChannels;
  if (channel) require(parser.begin_call("f").ok());
  for (size_t i = 0; i < reply.size(); i += step) {
    require(parser.push(reply.substr(i, step)).ok());
    take(parser, found);
  }
  if (channel) {
    require(parser.end_call().ok());
    take(parser, found);
  }
  require(parser.finish().ok());
  take(parser, found);
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  if (size < 2) return 0;
  const ToolFormat* format = tool_format(kTemplates[data[0] % std::size(kTemplates)]);
  require(format != nullptr);
  const std::string_view reply = all.substr(2);
  const Found whole = found_in(*format, reply, reply.size() + 1);
  require(found_in(*format, reply, data[1] % 31 + 1) == whole);
  const bool channel = format->syntax == ToolSyntax::kChannels;
  if (whole.calls.empty() && !channel) require(whole.text == reply);
  // The same text as tools and as a message: it is valid, or there is an error.
  (void)check_tools(reply);
  MessageParts parts(system_allocator());
  if (read_message(reply, parts).ok() && !parts.members.empty()) {
    require(json::is_valid(parts.members.view()));
    String again(system_allocator());
    require(rewrite_calls(parts.members.view(), true, again).ok() && json::is_valid(again.view()));
  }
  return 0;
}
