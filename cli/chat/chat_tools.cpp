// SPDX-License-Identifier: MIT
// Reads tools and calls, and adds results to a conversation.
#include "cli/chat/chat_tools.h"

#include <string_view>

#include "cli/help/help.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

constexpr uint64_t kMostToolBytes = uint64_t{16} << 20;
constexpr std::string_view kSpace = " \t\r\n";

bool is_auto(const std::string& choice) { return choice.empty() || choice == "auto"; }

}  // namespace

void add_tool_options(CLI::App& app, ToolOptions& o) {
  auto* file = app.add_option("--tools", o.file,
                              "Tools that the model may call: a JSON list as OpenAI's chat "
                              "completions have it. You type their results")
                   ->check(not_empty())
                   ->option_text("FILE");
  for (const char* grammar : {"--json-schema", "--grammar", "--regex"}) {
    file->excludes(app.get_option(grammar));
  }
  app.add_option("--tool-choice", o.choice,
                 "Whether a reply to a message of yours calls a tool: auto, required, or the name "
                 "of the one to call (default auto)")
      ->check(not_empty())
      ->option_text("CHOICE")
      ->needs(file);
}

void set_tools(const ToolOptions& o, moe_chat* chat) {
  if (o.file.empty()) return;
  const std::string json = read_file(o.file, kMostToolBytes);
  // The library takes no text for no tools, but a file without one was not written whole.
  if (json.find_first_not_of(kSpace) == std::string::npos) {
    throw UsageError("--tools: expected a JSON list in " + o.file + ", found nothing");
  }
  moe_error error;
  check_option(moe_chat_set_tools(chat, json.data(), json.size(), &error), error, "--tools");
  choose_tool(o, true, chat);
}

void choose_tool(const ToolOptions& o, bool as_said, moe_chat* chat) {
  if (is_auto(o.choice)) return;
  const bool any = o.choice == "required";
  const moe_tool_choice said = any ? MOE_TOOLS_REQUIRED : MOE_TOOLS_ONE;
  moe_error error;
  const moe_status status = moe_chat_set_tool_choice(
      chat, as_said ? said : MOE_TOOLS_AUTO, as_said && !any ? o.choice.c_str() : nullptr, &error);
  if (status == MOE_ERR_STATE) {
    throw UsageError("--tool-choice: the list of --tools, " + o.file + ", is empty");
  }
  check_option(status, error, "--tool-choice");
}

// The arguments are the last member, and stay as the model wrote them. Quotes inside the strings
// before them are escaped.
ToolCall::ToolCall(const std::string& json) {
  constexpr std::string_view kArguments = ", \"arguments\": ";
  const size_t end = json.find(kArguments);
  const Json call = Json::parse(json.substr(0, end) + "}");
  id = call["id"];
  name = call["name"];
  arguments = json.substr(end + kArguments.size());
  arguments.pop_back();
}

Json ToolCall::json() const {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

// Strings of JSON have no line ends of their own.
std::string ToolCall::shown() const {
  std::string line;
  bool in_gap = false;
  for (const char c : arguments) {
    in_gap = c == '\n' || (in_gap && kSpace.find(c) != std::string_view::npos);
    if (!in_gap) line += c;
  }
  return line;
}

// Some templates write the tool's name with the result.
void add_result(const ToolCall& call, const std::string& text, moe_chat* chat) {
  const Json message = {
      {"role", "tool"}, {"tool_call_id", call.id}, {"name", call.name}, {"content", text}};
  const std::string json = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  moe_error error;
  check(moe_chat_add_message(chat, json.data(), json.size(), &error), error);
}

}  // namespace moe_cli
