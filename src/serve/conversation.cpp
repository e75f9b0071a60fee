// SPDX-License-Identifier: MIT
// Checks the parts of messages and renders conversations through the chat template.
#include "src/serve/conversation.h"

#include <algorithm>
#include <utility>

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

std::string joined(const std::string& where, const std::string& key) {
  return where.empty() ? key : where + "." + key;
}

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : " or '") + name + "'";
  return text;
}

std::string variable_text(const Json& value, const std::string& field) {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (text.find('\0') == std::string::npos) return text;
  }
  if (value.is_boolean() || value.is_number_integer()) return value.dump();
  throw bad_field(field, "expected a text, a whole number, true or false, found " + shown(value));
}

std::vector<std::string> variables_of(const Host& host, const Json& request,
                                      const ChatOptions& options) {
  std::vector<std::string> variables;
  const std::string text = host.template_text();
  const auto add = [&](const std::string& field, const std::string& name,
                       const std::string& value) {
    if (text.find(name) == std::string::npos) {  // it would have no effect
      throw bad_field(field, "the chat template of the model does not use it");
    }
    variables.push_back(name + "=" + value);
  };
  const auto given = request.find("chat_template_kwargs");
  if (given != request.end() && !given->is_object()) {
    throw bad_field("chat_template_kwargs", "expected an object, found " + shown(*given));
  }
  if (given != request.end()) {
    for (const auto& [name, value] : given->items()) {
      const std::string field = "chat_template_kwargs." + name.substr(0, 40);
      const bool is_name =
          !name.empty() && name.find_first_of(std::string("=\0", 2)) == std::string::npos;
      if (!is_name) throw bad_field(field, "expected the name of a variable");
      add(field, name, variable_text(value, field));
    }
  }
  if (!options.effort_field.empty()) add(options.effort_field, "reasoning_effort", options.effort);
  return variables;
}

// Tools and messages with calls, whose faults are the request's.
void check_given(moe_status status, const moe_error& error, const std::string& field) {
  const bool fault = status == MOE_ERR_ARGUMENT || status == MOE_ERR_UNSUPPORTED ||
                     status == MOE_ERR_RANGE || status == MOE_ERR_TEXT;
  if (fault) throw bad_field(field, error.text, "unsupported_value");
  check(status, error);
}

// The fault of a tool, whose place the library names as chat completions do.
std::string fault_of(const ToolUse& use, std::string text) {
  constexpr std::string_view kFunction = ".function.";
  constexpr std::string_view kParameters = "parameters";
  const size_t at = text.find(kFunction);
  const bool named = text.starts_with("tools[") && at < text.find(':');
  if (!named || use.schema.empty()) return text;
  text.replace(at, kFunction.size(), ".");
  if (text.compare(at + 1, kParameters.size(), kParameters) == 0) {
    text.replace(at + 1, kParameters.size(), use.schema);
  }
  return text;
}

void give_tools(moe_chat* chat, const ToolUse& use) {
  if (use.list.empty()) return;
  Json list = use.list;
  if (use.required) {  // holds them to their schemas anyway, which need not be compiled twice
    for (Json& tool : list) {
      Json& function = tool["function"];
      if (function.value("strict", Json()) == true) function.erase("strict");
    }
  }
  const std::string tools = to_text(list);
  moe_error error;
  moe_status status = moe_chat_set_tools(chat, tools.data(), tools.size(), &error);
  const bool choosing = status == MOE_OK;
  if (choosing && use.required) {
    const char* only = use.only.empty() ? nullptr : use.only.c_str();
    const moe_tool_choice choice = use.one_call ? MOE_TOOLS_ONE : MOE_TOOLS_REQUIRED;
    status = moe_chat_set_tool_choice(chat, choice, only, &error);
  }
  // Their schemas fail in more ways than other fields.
  if (status == MOE_ERR_MEMORY) check(status, error);
  if (status == MOE_OK) return;
  const std::string text = fault_of(use, error.text);
  const bool of_choice = choosing && !text.starts_with("tools[");
  throw bad_field(of_choice ? "tool_choice" : "tools", text, "unsupported_value");
}

void add_turn(moe_chat* chat, const Turn& turn) {
  moe_error error;
  if (turn.message.is_null()) {
    check(moe_chat_add(chat, turn.role.c_str(), turn.content.data(), turn.content.size(), &error),
          error);
    return;
  }
  const std::string json = to_text(turn.message);
  check_given(moe_chat_add_message(chat, json.data(), json.size(), &error), error, turn.where);
}

Chat make_chat(const Host& host, const std::vector<std::string>& variables,
               const ChatOptions& options) {
  std::vector<const char*> texts;
  for (const std::string& variable : variables) texts.push_back(variable.c_str());
  auto params = MOE_INIT(moe_chat_params);
  if (!host.chat_template.empty()) params.chat_template = host.chat_template.c_str();
  params.variables = texts.data();
  params.n_variables = static_cast<int32_t>(texts.size());
  params.thinking = options.thinking;
  moe_chat* raw = nullptr;
  moe_error error;
  const moe_status status = moe_chat_create(host.witness, &params, &raw, &error);
  Chat chat(raw);
  const bool switched = options.thinking != MOE_THINKING_DEFAULT;
  if (switched && status == MOE_ERR_UNSUPPORTED) {
    throw bad_field(options.thinking_field, "the chat template of the model has no switch for it",
                    "unsupported_value");
  }
  const bool variable_at_fault = !variables.empty() && status == MOE_ERR_ARGUMENT;
  if (variable_at_fault) throw bad_field("chat_template_kwargs", error.text);
  check(status, error);
  check(moe_chat_set_session(raw, nullptr, &error), error);
  return chat;
}

}  // namespace

std::string text_in(const Json& object, const char* key, const std::string& where) {
  const std::string field = joined(where, key);
  const auto at = object.find(key);
  if (at == object.end()) throw missing_field(field);
  if (at->is_string()) return at->get<std::string>();
  throw bad_field(field, "expected a string, found " + kind_of(*at));
}

void check_keys(const Json& object, const std::string& where,
                const std::vector<const char*>& known) {
  for (const auto& [key, value] : object.items()) {
    const auto is = [&k = key](const char* name) { return k == name; };
    const bool empty = value.is_null() || value == Json::array();
    if (empty || std::any_of(known.begin(), known.end(), is)) continue;
    const std::string field = joined(where, key.substr(0, 40));
    throw Refusal(kBadRequest, "'" + field + "': unknown field, or not supported", field,
                  "unknown_parameter");
  }
}

// Besides its text a part may say what has been said of it, and where a cache should begin.
std::string part_text(const Json& part, const std::string& where, const PartTypes& types) {
  if (!part.is_object()) throw bad_field(where, "expected an object, found " + kind_of(part));
  const std::string type = text_in(part, "type", where);
  if (among(types.skipped, type)) return "";
  if (!among(types.texts, type)) {
    throw bad_field(where + ".type",
                    "expected " + listed(types.texts) + ", found '" + type.substr(0, 40) + "'",
                    "unsupported_value");
  }
  check_keys(part, where,
             {"type", "text", "annotations", "logprobs", "citations", "cache_control",
              "prompt_cache_breakpoint"});
  return text_in(part, "text", where);
}

std::string content_of(const Json& content, const std::string& where, const PartTypes& types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw bad_field(where, "expected a string or a list of parts, found " + kind_of(content));
  }
  std::string text;
  size_t i = 0;
  for (const Json& part : content) {
    text += part_text(part, where + "[" + std::to_string(i++) + "]", types);
  }
  return text;
}

std::string role_of(const Host& host, const std::string& role, const std::string& where) {
  if (role == "system" || role == "user" || role == "assistant") return role;
  if (role == "developer") {
    return host.template_text().find("developer") == std::string::npos ? "system" : role;
  }
  throw bad_field(where + ".role", "expected system, developer, user, assistant or tool, found '" +
                                       role.substr(0, 40) + "'");
}

const Json& messages_in(const Json& request, const char* field) {
  const auto messages = request.find(field);
  if (messages == request.end()) throw missing_field(field);
  if (!messages->is_array() || messages->empty()) {
    throw bad_field(field, "expected a non-empty list, found " + shown(*messages));
  }
  // Each text of the request renders them again, while others wait.
  constexpr size_t kMostMessages = 2048;
  if (messages->size() > kMostMessages) {
    throw bad_field(field, "expected at most " + std::to_string(kMostMessages) + ", found " +
                               std::to_string(messages->size()));
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    if ((*messages)[i].is_object()) continue;
    throw bad_field(std::string(field) + "[" + std::to_string(i) + "]",
                    "expected an object, found " + kind_of((*messages)[i]));
  }
  return *messages;
}

void read_effort(const Json& object, const char* key, const std::string& where,
                 ChatOptions& options) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return;
  options.effort_field = joined(where, key);
  options.effort = variable_text(*at, options.effort_field);
}

Chat conversation(const Host& host, const Json& request, const std::vector<Turn>& turns,
                  const ChatOptions& options) {
  if (!host.chats()) {
    throw Refusal(kBadRequest,
                  host.tokenizer == nullptr
                      ? "the model has no tokenizer; /v1/completions takes token ids"
                      : "the model has no chat template; the service can be given one",
                  options.list, "unsupported_value");
  }
  Chat chat = make_chat(host, variables_of(host, request, options), options);
  give_tools(chat.get(), options.tools);
  for (const Turn& turn : turns) add_turn(chat.get(), turn);
  return chat;
}

std::vector<int32_t> conversation_tokens(const moe_chat* chat, const std::string& list) {
  std::vector<int32_t> tokens(4096);
  size_t n = 0;
  moe_error error;
  moe_status status = moe_chat_tokens(chat, true, tokens.data(), tokens.size(), &n, &error);
  if (status == MOE_ERR_TOO_LONG && n > tokens.size()) {
    tokens.resize(n);
    status = moe_chat_tokens(chat, true, tokens.data(), tokens.size(), &n, &error);
  }
  const bool template_refuses =
      status == MOE_ERR_TEXT || status == MOE_ERR_TOO_LONG || status == MOE_ERR_UNSUPPORTED;
  if (template_refuses) throw bad_field(list, error.text);
  check(status, error);
  tokens.resize(n);
  return tokens;
}

Json earlier_call(const std::string& id, const std::string& name, const Json& arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

Turn result_turn(const std::string& id, const std::string& content, const std::string& where) {
  return {.role = "tool",
          .content = content,
          .message = {{"role", "tool"}, {"tool_call_id", id}, {"content", content}},
          .where = where};
}

void add_calls(std::vector<Turn>& turns, const Json& calls, const std::string& where) {
  if (turns.empty() || turns.back().role != "assistant") turns.push_back({"assistant", ""});
  Turn& turn = turns.back();
  if (turn.message.is_null()) {
    turn.message = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array()}};
    if (!turn.content.empty()) turn.message["content"] = turn.content;
    turn.where = where;
  }
  for (const Json& call : calls) turn.message["tool_calls"].push_back(call);
}

namespace {

// The calls of a reply; what else it has is checked by the library.
void add_reply_calls(const Json& message, const std::string& where, std::vector<Turn>& turns) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null() || *calls == Json::array()) return;
  const std::string field = where + ".tool_calls";
  if (!calls->is_array()) throw bad_field(field, "expected a list, found " + kind_of(*calls));
  if (turns.back().role != "assistant") {
    throw bad_field(field, "only a message with the role assistant has calls");
  }
  add_calls(turns, *calls, where);
  const auto thinking = message.find("reasoning_content");
  if (thinking != message.end()) turns.back().message["reasoning_content"] = *thinking;
}

}  // namespace

std::vector<Turn> chat_turns(const Host& host, const Json& request) {
  std::vector<Turn> turns;
  size_t i = 0;
  for (const Json& message : messages_in(request, "messages")) {
    const std::string where = "messages[" + std::to_string(i++) + "]";
    check_keys(message, where,
               {"role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id"});
    const bool result = text_in(message, "role", where) == "tool";
    const std::string role = result ? "tool" : role_of(host, message["role"], where);
    const auto content = message.find("content");
    const bool none = content == message.end() || content->is_null();
    if (none && role != "assistant") throw missing_field(where + ".content");
    const std::string text = none ? "" : content_of(*content, where + ".content", {{"text"}, {}});
    if (!result) {
      turns.push_back({role, text});
      add_reply_calls(message, where, turns);
      continue;
    }
    turns.push_back(result_turn(text_in(message, "tool_call_id", where), text, where));
    if (message.contains("name")) turns.back().message["name"] = text_in(message, "name", where);
  }
  return turns;
}

}  // namespace moe_serve
