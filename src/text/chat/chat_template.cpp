// SPDX-License-Identifier: MIT
// Makes a template's variables (messages, date, the caller's own) from a conversation and runs the
// program.
#include "src/text/chat/chat_template.h"

#include "src/text/chat/json/text.h"

namespace moe {
namespace {

using jinja::Entry;
using jinja::Evaluator;
using jinja::Value;

// Thinking in its tags, then the rest. Consecutively created texts are contiguous.
Status make_content(Evaluator& evaluator, const ChatInput& input, const ChatMessage& message,
                    Value* out) {
  if (message.no_content) {
    *out = jinja::none_value();
    return {};
  }
  const bool thinks = !message.thinking.empty() && !message.thinking_apart;
  const std::string_view thinking = thinks ? message.thinking : std::string_view();
  const struct {
    std::string_view text;
    bool from_user;
  } parts[] = {{thinks ? input.think_open : thinking, false},
               {thinking, true},
               {thinks ? input.think_close : thinking, false},
               {message.content, true},
               {message.calls[0], false},
               {message.calls[1], true},
               {message.calls[2], false}};
  MOE_TRY(evaluator.make_text("", false, out));
  for (const auto& part : parts) {
    Value value;
    MOE_TRY(evaluator.make_text(part.text, part.from_user, &value));
    out->b += value.b;
  }
  return {};
}

// The members of a message besides its role and content.
Status add_members(Evaluator& evaluator, const ChatMessage& message, Array<Entry>& entries) {
  std::string_view key;
  std::string_view value;
  if (!message.members.empty()) {
    for (json::Parts parts(message.members); parts.next(&key, &value);) {
      Entry entry;
      MOE_TRY(evaluator.make_json(key, &entry.key));
      MOE_TRY(evaluator.make_json(value, &entry.value));
      MOE_TRY(entries.push(entry));
    }
  }
  if (!message.thinking_apart || message.thinking.empty()) return {};
  Entry entry;
  MOE_TRY(evaluator.make_text("thinking", false, &entry.key));
  MOE_TRY(evaluator.make_text(message.thinking, true, &entry.value));
  return entries.push(entry);
}

// Roles and contents come from the user, keys from us.
Status make_messages(Evaluator& evaluator, const ChatInput& input, const Allocator& allocator,
                     Value* out) {
  Value role_key;
  Value content_key;
  MOE_TRY(evaluator.make_text("role", false, &role_key));
  MOE_TRY(evaluator.make_text("content", false, &content_key));
  Array<Value> messages(allocator);
  for (const ChatMessage& message : input.messages) {
    Array<Entry> entries(allocator);
    MOE_TRY(entries.resize(2));
    entries[0].key = role_key;
    entries[1].key = content_key;
    MOE_TRY(evaluator.make_text(message.role, true, &entries[0].value));
    MOE_TRY(make_content(evaluator, input, message, &entries[1].value));
    MOE_TRY(add_members(evaluator, message, entries));
    Value value;
    MOE_TRY(evaluator.make_dict(entries, &value));
    MOE_TRY(messages.push(value));
  }
  return evaluator.make_list(messages, out);
}

bool read_integer(std::string_view text, int64_t* out) {
  const bool negative = text.starts_with("-");
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 18) return false;
  int64_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    n = n * 10 + (c - '0');
  }
  *out = negative ? -n : n;
  return true;
}

Status make_variable(Evaluator& evaluator, const ChatVariable& variable) {
  Value value;
  int64_t number = 0;
  if (variable.value == "true" || variable.value == "false") {
    value = jinja::bool_value(variable.value == "true");
  } else if (variable.value == "none") {
    value = jinja::none_value();
  } else if (read_integer(variable.value, &number)) {
    value = jinja::int_value(number);
  } else {
    MOE_TRY(evaluator.make_text(variable.value, true, &value));
  }
  return evaluator.set_global(variable.name, value);
}

Status make_globals(Evaluator& evaluator, const ChatInput& input, const Allocator& allocator) {
  Value messages;
  MOE_TRY(make_messages(evaluator, input, allocator, &messages));
  MOE_TRY(evaluator.set_global("messages", messages));
  Value tools = jinja::none_value();
  if (!input.tools.empty()) MOE_TRY(evaluator.make_json(input.tools, &tools));
  MOE_TRY(evaluator.set_global("tools", tools));
  MOE_TRY(evaluator.set_global("documents", jinja::none_value()));
  MOE_TRY(evaluator.set_global("add_generation_prompt",
                               jinja::bool_value(input.add_generation_prompt)));
  for (const auto& [name, token] :
       {ChatVariable{"bos_token", input.bos_token}, ChatVariable{"eos_token", input.eos_token},
        ChatVariable{"unk_token", input.unk_token}, ChatVariable{"pad_token", input.pad_token}}) {
    if (token.empty()) continue;
    Value value;
    MOE_TRY(evaluator.make_text(token, false, &value));
    MOE_TRY(evaluator.set_global(name, value));
  }
  for (const ChatVariable& variable : input.variables) {
    MOE_TRY(make_variable(evaluator, variable));
  }
  return {};
}

}  // namespace

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (const size_t i : {0U, 1U, 2U, 3U, 5U, 6U, 8U, 9U}) {
    if (text[i] < '0' || text[i] > '9') return false;
  }
  const int month = (text[5] - '0') * 10 + text[6] - '0';
  const int day = (text[8] - '0') * 10 + text[9] - '0';
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

Result<Box<ChatTemplate>> ChatTemplate::create(std::string_view source,
                                               const Allocator& allocator) {
  MOE_ASSIGN(Box<ChatTemplate> out, make_box<ChatTemplate>(allocator, allocator));
  MOE_TRY(jinja::parse(source, out->program_));
  return out;
}

Status ChatTemplate::render(const ChatInput& input, ChatText& out,
                            const jinja::Limits& limits) const {
  const Allocator& allocator = program_.text.allocator();
  if (!input.date.empty() && !is_date(input.date)) {
    return Status::error(MOE_ERR_ARGUMENT, "date: expected YYYY-MM-DD, found '%.*s'",
                         static_cast<int>(std::min<size_t>(input.date.size(), 40)),
                         input.date.data());
  }
  Evaluator evaluator(program_, limits, allocator);
  MOE_TRY(evaluator.prepare(input.date));
  MOE_TRY(make_globals(evaluator, input, allocator).with_context("conversation"));
  return evaluator.run(out);
}

bool ChatTemplate::uses(std::string_view variable) const {
  for (const jinja::Node& node : program_.nodes) {
    if (node.op == jinja::Op::kName && program_.view(node.text) == variable) return true;
  }
  return false;
}

}  // namespace moe
