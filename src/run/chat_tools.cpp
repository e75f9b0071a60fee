// SPDX-License-Identifier: MIT
// Tools of a chat: messages with calls and results, and how the template wants to have them.

#include "src/run/chat.h"
#include "src/run/chat_change.h"
#include "src/text/chat/json/scanner.h"
#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/message.h"

namespace moe {
namespace {

constexpr size_t kMostNamedCalls = 1024;  // the latest ones, in which a result looks for its own

bool has(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

}  // namespace

Status name_calls(StoredMessage& message) {
  if (message.members.empty()) return {};
  const std::string_view calls = json::member(message.members.view(), "tool_calls");
  if (calls.empty()) return {};
  std::string_view key;
  std::string_view call;
  for (json::Parts parts(calls); parts.next(&key, &call);) {
    const std::string_view id = json::member(call, "id");
    if (!json::is_string(id)) continue;
    NamedCall named(message.named.allocator());
    MOE_TRY(json::read_string(id, named.id));
    MOE_TRY(named.name.assign(json::member(json::member(call, "function"), "name")));
    MOE_TRY(message.named.push(std::move(named)));
  }
  return {};
}

Status Chat::check_tools(std::string_view json, bool* none) const {
  if (!json.empty()) MOE_TRY(moe::check_tools(json));
  json = json::trimmed(json);
  *none = json.empty() || json::trimmed(slice(json, 1, json.size() - 2)).empty();
  if (*none) return {};
  if (!template_->uses("tools")) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the chat template has no tools; another template can be given");
  }
  if (format_ != nullptr) return {};
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "the chat template asks for calls in no format that is known (%s); "
                       "another template can be given",
                       tool_format_names());
}

Status Chat::set_tools(std::string_view json) {
  const Change change(busy_);
  MOE_TRY(change.status());
  bool none = false;
  MOE_TRY(check_tools(json, &none));
  String fresh(allocator_);
  if (!none) {
    json = json::trimmed(json);
    const bool strict = json.find("\"strict\"") != std::string_view::npos;
    MOE_TRY(strict ? write_without_strict(json, fresh) : fresh.assign(json));
  }
  tools_ = std::move(fresh);
  return {};
}

Status Chat::add_message(std::string_view json) {
  const Change change(busy_);
  MOE_TRY(change.status());
  MessageParts parts(allocator_);
  MOE_TRY(read_message(json, parts));
  if (parts.role.empty() || parts.role.size() > kMaxRoleBytes) {
    return Status::error(MOE_ERR_RANGE, "message.role: expected 1..%zu bytes, found %zu",
                         kMaxRoleBytes, parts.role.size());
  }
  if (parts.calls) MOE_TRY(choose_call_style());
  MOE_TRY(name_result(parts.members));
  StoredMessage message(allocator_);
  message.role = std::move(parts.role);
  message.content = std::move(parts.content);
  message.thinking = std::move(parts.thinking);
  message.members = std::move(parts.members);
  message.no_content = parts.no_content;
  message.calls = parts.calls;
  MOE_TRY(name_calls(message));
  return messages_.push(std::move(message));
}

// Some templates write a tool's name with its result, which may have only the id of its call.
Status Chat::name_result(String& members) const {
  if (members.empty() || !json::member(members.view(), "name").empty()) return {};
  const std::string_view id = json::member(members.view(), "tool_call_id");
  if (!json::is_string(id)) return {};
  size_t n = 0;
  for (size_t i = messages_.size(); i-- > 0;) {
    const Array<NamedCall>& calls = messages_[i].named;
    for (size_t k = calls.size(); k-- > 0;) {
      if (++n > kMostNamedCalls) return {};
      if (!json::spells(id, calls[k].id.view())) continue;
      String named(allocator_);
      MOE_TRY(named.append(slice(members.view(), 0, members.size() - 1)));
      MOE_TRY(named.append(", \"name\": "));
      MOE_TRY(named.append(calls[k].name.view()));
      MOE_TRY(named.append("}"));
      members = std::move(named);
      return {};
    }
  }
  return {};
}

// Templates differ in what they expect, and none says so: the first style with which one writes a
// call as JSON, or in tags, is the right one.
Status Chat::choose_call_style() {
  if (style_known_) return {};
  for (const bool texts : {false, true}) {
    for (const bool empty_text : {false, true}) {
      const CallStyle style = {.texts = texts, .empty_text = empty_text};
      MOE_TRY(calls_written(style, &style_known_));
      if (!style_known_) continue;
      style_ = style;
      return {};
    }
  }
  if (format_ != nullptr && format_->syntax == ToolSyntax::kJson) {
    style_ = {.in_content = true, .empty_text = true};
    style_known_ = true;
    return {};
  }
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "the chat template does not write the calls of earlier replies; another "
                       "template can be given");
}

Status Chat::calls_written(CallStyle style, bool* written) const {
  constexpr std::string_view kCall =
      R"({"tool_calls": [{"id": "aaaaaaaaa", "type": "function", "function": )"
      R"({"name": "probe_name", "arguments": {"probe_key": "probe_value"}}}]})";
  String call(allocator_);
  MOE_TRY(rewrite_calls(kCall, style.texts, call));
  constexpr std::string_view kTools =
      R"([{"type": "function", "function": {"name": "probe_tool", "description": "d", )"
      R"("parameters": {"type": "object", "properties": {"p": {"type": "string", )"
      R"("description": "d"}}, "required": ["p"]}}}])";
  const ChatMessage messages[] = {
      {"user", "probe_question"},
      {.role = "assistant", .content = "", .members = call.view(), .no_content = !style.empty_text},
      {.role = "tool",
       .content = "r",
       .members = R"({"tool_call_id": "aaaaaaaaa", "name": "probe_name"})"}};
  ChatText text(allocator_);
  const Status status = render_messages(messages, kTools, false, {}, text);
  if (status.code() == MOE_ERR_MEMORY) return status;
  const std::string_view all = slice(text.view(), text.view().rfind("probe_question"));
  *written = status.ok() && has(all, "probe_name") && has(all, "probe_key") &&
             has(all, "probe_value") && !has(all, "{'probe_key'") && !has(all, "\\\"probe_key") &&
             (style.empty_text || !has(all, "None"));
  return {};
}

// A message with calls as the template gets it; `texts` has room for what that needs.
Status Chat::add_calls(const StoredMessage& m, Array<String>& texts, ChatMessage& out) const {
  out.no_content = m.shown_content().empty() && out.thinking.empty() && !style_.empty_text;
  if (tags_.channels && m.shown_content().empty()) {
    out.thinking = m.shown_thinking();
    out.thinking_apart = true;
  }
  out.members = m.members.view();
  if (!style_.texts && !style_.in_content) return {};
  String text(allocator_);
  MOE_TRY(style_.in_content ? write_call_list(m.members.view(), text)
                            : rewrite_calls(m.members.view(), true, text));
  MOE_TRY(texts.push(std::move(text)));
  const std::string_view written = texts.back().view();
  if (style_.in_content) {
    const auto& marks = format_->marks;
    out.calls[0] = marks[ToolFormat::kOpen];
    out.calls[1] = written;
    out.calls[2] = marks[ToolFormat::kClose];
  } else {
    out.members = written;
  }
  return {};
}

}  // namespace moe
