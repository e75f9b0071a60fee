// SPDX-License-Identifier: MIT
// Checks the messages of a conversation and renders them through the chat template.
#include "src/serve/messages.h"

#include <utility>

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

std::string text_in(const Json& object, const char* key, const std::string& where) {
  const std::string field = where + "." + key;
  const auto at = object.find(key);
  if (at == object.end()) {
    throw Refusal(kBadRequest, "'" + field + "' is missing", field, "missing_required_parameter");
  }
  if (at->is_string()) return at->get<std::string>();
  throw bad_field(field, "expected a string, found " + kind_of(*at));
}

// A string, or the text of a list of parts, {"type": "text", "text": ...}.
std::string content_of(const Json& message, const std::string& where) {
  const auto at = message.find("content");
  const bool none = at == message.end() || at->is_null();
  if (none && message.value("role", "") == "assistant") return "";  // so the API has it
  if (none || !at->is_array()) return text_in(message, "content", where);
  std::string content;
  size_t i = 0;
  for (const Json& part : *at) {
    const std::string here = where + ".content[" + std::to_string(i++) + "]";
    if (!part.is_object()) throw bad_field(here, "expected an object, found " + kind_of(part));
    const std::string type = text_in(part, "type", here);
    if (type != "text") {
      throw bad_field(here + ".type", "expected 'text', found '" + type.substr(0, 40) + "'");
    }
    content += text_in(part, "text", here);
  }
  return content;
}

// "developer" is a newer name of "system"; a template that does not know it gets the old one.
std::string role_of(const Host& host, const Json& message, const std::string& where) {
  const std::string role = text_in(message, "role", where);
  if (role == "system" || role == "user" || role == "assistant") return role;
  if (role == "developer") {
    return host.template_text().find("developer") == std::string::npos ? "system" : role;
  }
  throw bad_field(where + ".role", "expected system, developer, user or assistant, found '" +
                                       role.substr(0, 40) + "'");
}

void add_message(const Host& host, moe_chat* chat, const Json& message, const std::string& where) {
  if (!message.is_object()) throw bad_field(where, "expected an object, found " + kind_of(message));
  for (const auto& [key, value] : message.items()) {
    // Templates get neither names nor the thinking of earlier replies.
    const bool known =
        key == "role" || key == "content" || key == "name" || key == "reasoning_content";
    const bool empty = value.is_null() || value == Json::array();
    if (known || empty) continue;
    const std::string field = where + "." + key.substr(0, 40);
    throw Refusal(kBadRequest, "'" + field + "': unknown field, or not supported", field,
                  "unknown_parameter");
  }
  const std::string role = role_of(host, message, where);
  const std::string content = content_of(message, where);
  moe_error error;
  check(moe_chat_add(chat, role.c_str(), content.data(), content.size(), &error), error);
}

std::string variable_text(const Json& value, const std::string& field) {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (text.find('\0') == std::string::npos) return text;
  }
  if (value.is_boolean() || value.is_number_integer()) return value.dump();
  throw bad_field(field, "expected a text, a whole number, true or false, found " + shown(value));
}

std::vector<std::string> variables_of(const Host& host, const Json& request) {
  std::vector<std::string> variables;
  const std::string text = host.template_text();
  const auto add = [&](const std::string& field, const std::string& name, const Json& value) {
    if (text.find(name) == std::string::npos) {  // it would have no effect
      throw bad_field(field, "the chat template of the model does not use it");
    }
    variables.push_back(name + "=" + variable_text(value, field));
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
      add(field, name, value);
    }
  }
  const auto effort = request.find("reasoning_effort");
  if (effort != request.end()) add("reasoning_effort", "reasoning_effort", *effort);
  return variables;
}

Chat make_chat(const Host& host, const std::vector<std::string>& variables) {
  std::vector<const char*> texts;
  for (const std::string& variable : variables) texts.push_back(variable.c_str());
  auto params = MOE_INIT(moe_chat_params);
  if (!host.chat_template.empty()) params.chat_template = host.chat_template.c_str();
  params.variables = texts.data();
  params.n_variables = static_cast<int32_t>(texts.size());
  moe_chat* raw = nullptr;
  moe_error error;
  const moe_status status = moe_chat_create(host.witness, &params, &raw, &error);
  Chat chat(raw);
  const bool variable_at_fault = !variables.empty() && status == MOE_ERR_ARGUMENT;
  if (variable_at_fault) throw bad_field("chat_template_kwargs", error.text);
  check(status, error);
  check(moe_chat_set_session(raw, nullptr, &error), error);
  return chat;
}

}  // namespace

Chat conversation(const Host& host, const Json& request) {
  const auto messages = request.find("messages");
  if (messages == request.end()) {
    throw Refusal(kBadRequest, "'messages' is missing", "messages", "missing_required_parameter");
  }
  if (!messages->is_array() || messages->empty()) {
    throw bad_field("messages", "expected a non-empty list, found " + shown(*messages));
  }
  // Each text of the request renders them again, while others wait.
  constexpr size_t kMostMessages = 2048;
  if (messages->size() > kMostMessages) {
    throw bad_field("messages", "expected at most " + std::to_string(kMostMessages) + ", found " +
                                    std::to_string(messages->size()));
  }
  if (!host.chats()) {
    throw Refusal(kBadRequest,
                  host.tokenizer == nullptr
                      ? "the model has no tokenizer; /v1/completions takes token ids"
                      : "the model has no chat template; the service can be given one",
                  "messages", "unsupported_value");
  }
  Chat chat = make_chat(host, variables_of(host, request));
  for (size_t i = 0; i < messages->size(); ++i) {
    add_message(host, chat.get(), (*messages)[i], "messages[" + std::to_string(i) + "]");
  }
  return chat;
}

std::vector<int32_t> conversation_tokens(const moe_chat* chat) {
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
  if (template_refuses) throw bad_field("messages", error.text);
  check(status, error);
  tokens.resize(n);
  return tokens;
}

}  // namespace moe_serve
