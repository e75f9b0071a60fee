// SPDX-License-Identifier: MIT
// Reads requests of Anthropic's messages.

#include "src/serve/conversation.h"
#include "src/serve/refusal.h"
#include "src/serve/request.h"
#include "src/serve/tools.h"

namespace moe_serve {
namespace {

const Fields& conversation_fields() {
  static const Fields fields = {
      "messages", "system",     "thinking", "output_config", "chat_template_kwargs",
      "tools",    "tool_choice"};
  return fields;
}

// A block of a reply, or of the user, as a turn of its own; false: it is of another type.
bool add_block(const Json& block, const std::string& role, const std::string& where,
               std::vector<Turn>& turns) {
  if (!block.is_object() || !block.contains("type")) return false;
  if (role == "assistant" && block["type"] == "tool_use") {
    check_keys(block, where, {"type", "id", "name", "input", "cache_control", "caller"});
    const Json input = block.value("input", Json::object());
    if (!input.is_object()) {
      throw bad_field(where + ".input", "expected an object, found " + kind_of(input));
    }
    add_calls(turns,
              Json::array({earlier_call(text_in(block, "id", where), text_in(block, "name", where),
                                        input)}),
              where);
    return true;
  }
  if (role != "user" || block["type"] != "tool_result") return false;
  check_keys(block, where, {"type", "tool_use_id", "content", "is_error", "cache_control"});
  const auto content = block.find("content");
  const bool none = content == block.end() || content->is_null();
  const std::string text = none ? "" : content_of(*content, where + ".content", {{"text"}, {}});
  turns.push_back(result_turn(text_in(block, "tool_use_id", where), text, where));
  return true;
}

// The texts of a message, and its calls and results in their order.
void add_message(const std::string& role, const Json& content, const std::string& where,
                 std::vector<Turn>& turns) {
  PartTypes types = {{"text"}, {}};
  if (role == "assistant") types.skipped = {"thinking", "redacted_thinking"};
  if (!content.is_array()) {
    turns.push_back({role, content_of(content, where, types)});
    return;
  }
  const size_t n_before = turns.size();
  std::string thinking;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = where + "[" + std::to_string(i) + "]";
    if (add_block(content[i], role, place, turns)) continue;
    const std::string text = part_text(content[i], place, types);
    if (content[i]["type"] == "thinking") thinking += content[i].value("thinking", "");
    const bool goes_on = turns.size() > n_before && turns.back().message.is_null();
    if (goes_on) {
      turns.back().content += text;
    } else if (!text.empty()) {
      turns.push_back({role, text});
    }
  }
  if (turns.size() == n_before) turns.push_back({role, ""});
  Turn& last = turns.back();
  if (role == "assistant" && !last.message.is_null() && !thinking.empty()) {
    last.message["reasoning_content"] = thinking;
  }
}

std::vector<Turn> message_turns(const Host& host, const Json& request) {
  std::vector<Turn> turns;
  const auto system = request.find("system");
  if (system != request.end())
    turns.push_back({"system", content_of(*system, "system", {{"text"}, {}})});
  size_t i = 0;
  for (const Json& message : messages_in(request, "messages")) {
    const std::string where = "messages[" + std::to_string(i++) + "]";
    check_keys(message, where, {"role", "content"});
    const std::string role = role_of(host, text_in(message, "role", where), where);
    const auto content = message.find("content");
    if (content == message.end()) throw missing_field(where + ".content");
    add_message(role, *content, where + ".content", turns);
  }
  if (turns.back().role == "assistant") {  // this API would continue it
    throw bad_field("messages[" + std::to_string(i - 1) + "].role",
                    "the beginning of a reply is not supported; end with a message of the user",
                    "unsupported_value");
  }
  return turns;
}

// Required by the API; the model thinks as long as it does.
void check_budget(const Json& thinking) {
  const auto budget = thinking.find("budget_tokens");
  if (budget == thinking.end()) throw missing_field("thinking.budget_tokens");
  if (budget->is_number_integer() && *budget >= 1) return;
  throw bad_field("thinking.budget_tokens",
                  "expected a whole number above 0, found " + shown(*budget));
}

// A template that never speaks of thinking has nothing to switch off.
void read_thinking(const Host& host, const Json& request, ChatOptions& options) {
  const auto at = request.find("thinking");
  if (at == request.end()) return;
  if (!at->is_object()) throw bad_field("thinking", "expected an object, found " + shown(*at));
  check_keys(*at, "thinking", {"type", "budget_tokens", "display"});
  options.thinking_field = "thinking.type";
  const std::string type = text_in(*at, "type", "thinking");
  if (type == "enabled") {
    options.thinking = MOE_THINKING_ON;
    check_budget(*at);
  } else if (type == "disabled") {
    const bool thinks = host.template_text().find("think") != std::string::npos;
    options.thinking = thinks ? MOE_THINKING_OFF : MOE_THINKING_DEFAULT;
  } else if (type != "adaptive") {
    throw bad_field("thinking.type",
                    "expected enabled, disabled or adaptive, found '" + type.substr(0, 40) + "'");
  }
  const Json display = at->value("display", Json());
  if (display.is_null() || display == "summarized") return;
  throw bad_field("thinking.display", "not supported, found " + shown(display),
                  "unsupported_value");
}

void read_output(const Json& request, ChatOptions& options) {
  const auto at = request.find("output_config");
  if (at == request.end()) return;
  if (!at->is_object()) throw bad_field("output_config", "expected an object, found " + shown(*at));
  check_keys(*at, "output_config", {"effort"});
  read_effort(*at, "effort", "output_config", options);
}

Chat chat_of(const Host& host, const Json& request, const ToolUse& use) {
  ChatOptions options{.list = "messages"};
  options.tools = use;
  read_thinking(host, request, options);
  read_output(request, options);
  return conversation(host, request, message_turns(host, request), options);
}

}  // namespace

void read_message(const Host& host, const Json& request, Order& order) {
  Fields fields = {"max_tokens", "stop_sequences"};
  fields.insert(fields.end(), conversation_fields().begin(), conversation_fields().end());
  check_fields(request, generating_fields(fields));
  Settings& s = order.settings;
  s = read_settings(host, request);
  if (!request.contains("max_tokens")) throw missing_field("max_tokens");
  s.max_tokens = tokens_of(request, "max_tokens", 0);
  s.stop = stops_of(host, request, "stop_sequences");
  const ToolUse use = message_tools(request);
  s.one_call = use.one_call;
  order.chat = chat_of(host, request, use);
  order.prompts.push_back(conversation_tokens(order.chat.get(), "messages"));
  check_length(host, order.prompts[0], "messages");
}

std::vector<int32_t> message_tokens(const Host& host, const Json& request) {
  Fields fields = conversation_fields();
  fields.push_back("model");
  check_fields(request, fields);
  check_model(host, request);
  const Chat chat = chat_of(host, request, free_of_form(message_tools(request)));
  return conversation_tokens(chat.get(), "messages");
}

}  // namespace moe_serve
