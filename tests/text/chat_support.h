// SPDX-License-Identifier: MIT
#pragma once
// Reads cases of rendered conversations, which tests/parity/chat_templates.py writes.

#include <string>
#include <vector>

#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "src/text/chat/chat_template.h"

namespace moe {

struct ChatCase {
  std::vector<std::pair<std::string, std::string>> messages;  // role, content
  std::vector<std::pair<std::string, std::string>> variables;
  bool add_generation_prompt = false;
  std::string bos;
  std::string eos;
  std::string date;
};

inline ChatCase read_chat_case(const Json& json) {
  ChatCase c;
  for (const Json& m : json.at("messages")) {
    c.messages.emplace_back(m.at("role").get<std::string>(), m.at("content").get<std::string>());
  }
  if (json.contains("variables")) {
    for (const auto& [name, value] : json.at("variables").items()) {
      c.variables.emplace_back(name, value.get<std::string>());
    }
  }
  c.add_generation_prompt = json.at("add_generation_prompt").get<bool>();
  const JsonNode node(json, "case");
  c.bos = node.string("bos", "");
  c.eos = node.string("eos", "");
  c.date = node.string("date", "");
  return c;
}

inline Status render_case(const ChatTemplate& chat, const ChatCase& c, ChatText& out,
                          const jinja::Limits& limits = {}) {
  std::vector<ChatMessage> messages;
  for (const auto& [role, content] : c.messages) messages.push_back({role, content});
  std::vector<ChatVariable> variables;
  for (const auto& [name, value] : c.variables) variables.push_back({name, value});
  ChatInput input;
  input.messages = {messages.data(), messages.size()};
  input.variables = {variables.data(), variables.size()};
  input.add_generation_prompt = c.add_generation_prompt;
  input.bos_token = c.bos;
  input.eos_token = c.eos;
  input.date = c.date;
  return chat.render(input, out, limits);
}

/// The text, or "error: " and its message.
inline std::string rendered(std::string_view source, const ChatCase& c) {
  const auto chat = ChatTemplate::create(source, system_allocator());
  if (!chat.ok()) return std::string("error: ") + chat.status().text();
  ChatText out(system_allocator());
  const Status status = render_case(*chat.value(), c, out);
  if (!status.ok()) return std::string("error: ") + status.text();
  return std::string(out.view());
}

}  // namespace moe
