// SPDX-License-Identifier: MIT
// Checks tools and messages, and rewrites the arguments of calls.
#include "src/text/chat/tools/message.h"

#include "src/text/chat/json/scanner.h"
#include "src/text/chat/json/text.h"

namespace moe {
namespace {

constexpr size_t kMostTools = 1024;

Status bad(const char* where, size_t index, const char* member, const char* expected,
           std::string_view found) {
  return Status::error(MOE_ERR_ARGUMENT, "%s[%zu]%s: expected %s, found %.*s", where, index, member,
                       expected, static_cast<int>(std::min<size_t>(found.size(), 40)),
                       found.empty() ? "nothing" : found.data());
}

Status bad(const char* where, size_t index, const char* member, const char* expected) {
  return bad(where, index, member, expected, std::string_view("nothing"));
}

bool is_text(std::string_view value) { return json::is_string(value) && value.size() > 2; }

Status check_tool(std::string_view tool, size_t i) {
  if (!json::is_object(tool)) return bad("tools", i, "", "an object", tool);
  const std::string_view type = json::member(tool, "type");
  const std::string_view function = json::member(tool, "function");
  if (!type.empty() && !(json::is_string(type) && json::spells(type, "function"))) {
    return bad("tools", i, ".type", "\"function\"", type);
  }
  if (!json::is_object(function)) {
    return function.empty() ? bad("tools", i, ".function", "an object")
                            : bad("tools", i, ".function", "an object", function);
  }
  const std::string_view name = json::member(function, "name");
  if (!is_text(name)) {
    return name.empty() ? bad("tools", i, ".function.name", "a name")
                        : bad("tools", i, ".function.name", "a name", name);
  }
  const std::string_view parameters = json::member(function, "parameters");
  if (!parameters.empty() && !json::is_object(parameters) && parameters != "null") {
    return bad("tools", i, ".function.parameters", "a JSON schema, which is an object", parameters);
  }
  const std::string_view strict = json::member(function, "strict");
  if (!strict.empty() && strict != "true" && strict != "false" && strict != "null") {
    return bad("tools", i, ".function.strict", "true or false", strict);
  }
  return {};
}

// Appends `key: value` to an object that has been begun.
Status put_member(std::string_view key, std::string_view value, String& out) {
  if (!out.view().ends_with("{")) MOE_TRY(out.append(", "));
  MOE_TRY(out.append(key));
  MOE_TRY(out.append(": "));
  return out.append(value);
}

Status put_arguments(std::string_view value, bool as_text, size_t i, String& out) {
  String text(out.allocator());
  std::string_view object = value;
  if (json::is_string(value)) {
    MOE_TRY(json::read_string(value, text));
    object = json::trimmed(text.view());
    if (object.empty()) object = "{}";
  }
  if (!json::is_valid(object) || !json::is_object(object)) {
    return bad("tool_calls", i, ".function.arguments", "a JSON object, or a text of one", value);
  }
  return as_text ? json::write_string(object, out) : out.append(object);
}

Status put_function(std::string_view function, bool as_texts, size_t i, String& out) {
  if (!json::is_object(function)) return bad("tool_calls", i, ".function", "an object", function);
  if (!is_text(json::member(function, "name"))) {
    return bad("tool_calls", i, ".function.name", "a name");
  }
  MOE_TRY(out.append("{"));
  std::string_view key;
  std::string_view value;
  bool given = false;
  for (json::Parts parts(function); parts.next(&key, &value);) {
    const bool arguments = json::spells(key, "arguments");
    given = given || arguments;
    MOE_TRY(put_member(key, arguments ? std::string_view() : value, out));
    if (arguments) MOE_TRY(put_arguments(value, as_texts, i, out));
  }
  if (!given) {
    MOE_TRY(put_member("\"arguments\"", "", out));
    MOE_TRY(put_arguments("{}", as_texts, i, out));
  }
  return out.append("}");
}

Status put_calls(std::string_view calls, bool as_texts, String& out) {
  if (!json::is_list(calls)) {
    return Status::error(MOE_ERR_ARGUMENT, "tool_calls: expected a list, found %.*s",
                         static_cast<int>(std::min<size_t>(calls.size(), 40)), calls.data());
  }
  MOE_TRY(out.append("["));
  std::string_view key;
  std::string_view call;
  size_t i = 0;
  for (json::Parts parts(calls); parts.next(&key, &call); ++i) {
    if (!json::is_object(call)) return bad("tool_calls", i, "", "an object", call);
    if (i > 0) MOE_TRY(out.append(", "));
    MOE_TRY(out.append("{"));
    std::string_view value;
    bool given = false;
    for (json::Parts members(call); members.next(&key, &value);) {
      const bool function = json::spells(key, "function");
      given = given || function;
      MOE_TRY(put_member(key, function ? std::string_view() : value, out));
      if (function) MOE_TRY(put_function(value, as_texts, i, out));
    }
    if (!given) return bad("tool_calls", i, ".function", "an object");
    MOE_TRY(out.append("}"));
  }
  return out.append("]");
}

Status take_text(const char* name, std::string_view value, String& out) {
  if (json::is_string(value)) return json::read_string(value, out);
  return Status::error(MOE_ERR_ARGUMENT, "message.%s: expected a text, found %.*s", name,
                       static_cast<int>(std::min<size_t>(value.size(), 40)), value.data());
}

}  // namespace

Status check_tools(std::string_view tools) {
  if (!json::is_valid(tools) || !json::is_list(json::trimmed(tools))) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "tools: expected a list in valid JSON, nested at most %d levels, found "
                         "'%.*s'",
                         json::kMostDepth, static_cast<int>(std::min<size_t>(tools.size(), 40)),
                         tools.data());
  }
  size_t n = 0;
  std::string_view key;
  std::string_view tool;
  for (json::Parts parts(json::trimmed(tools)); parts.next(&key, &tool); ++n) {
    if (n == kMostTools) {
      return Status::error(MOE_ERR_RANGE, "tools: expected at most %zu, found more", kMostTools);
    }
    MOE_TRY(check_tool(tool, n));
  }
  return {};
}

bool any_strict(std::string_view tools) {
  std::string_view key;
  std::string_view tool;
  for (json::Parts parts(json::trimmed(tools)); parts.next(&key, &tool);) {
    if (json::member(json::member(tool, "function"), "strict") == "true") return true;
  }
  return false;
}

Status write_without_strict(std::string_view tools, String& out) {
  std::string_view key;
  std::string_view tool;
  bool first = true;
  MOE_TRY(out.append("["));
  for (json::Parts parts(json::trimmed(tools)); parts.next(&key, &tool); first = false) {
    MOE_TRY(out.append(first ? "{" : ", {"));
    std::string_view value;
    for (json::Parts members(tool); members.next(&key, &value);) {
      const bool function = json::spells(key, "function");
      MOE_TRY(put_member(key, function ? std::string_view("{") : value, out));
      if (!function) continue;
      std::string_view inner;
      for (json::Parts own(value); own.next(&key, &inner);) {
        if (!json::spells(key, "strict")) MOE_TRY(put_member(key, inner, out));
      }
      MOE_TRY(out.append("}"));
    }
    MOE_TRY(out.append("}"));
  }
  return out.append("]");
}

Status rewrite_calls(std::string_view members, bool as_texts, String& out) {
  MOE_TRY(out.append("{"));
  std::string_view key;
  std::string_view value;
  for (json::Parts parts(members); parts.next(&key, &value);) {
    const bool calls = json::spells(key, "tool_calls");
    MOE_TRY(put_member(key, calls ? std::string_view() : value, out));
    if (calls) MOE_TRY(put_calls(value, as_texts, out));
  }
  return out.append("}");
}

Status write_call_list(std::string_view members, String& out) {
  std::string_view key;
  std::string_view call;
  MOE_TRY(out.append("["));
  bool first = true;
  for (json::Parts parts(json::member(members, "tool_calls")); parts.next(&key, &call);) {
    const std::string_view function = json::member(call, "function");
    MOE_TRY(out.append(first ? "{\"name\": " : ", {\"name\": "));
    MOE_TRY(out.append(json::member(function, "name")));
    MOE_TRY(out.append(", \"arguments\": "));
    MOE_TRY(out.append(json::member(function, "arguments")));
    MOE_TRY(out.append("}"));
    first = false;
  }
  return out.append("]");
}

Status read_message(std::string_view message, MessageParts& out) {
  message = json::trimmed(message);
  if (!json::is_valid(message) || !json::is_object(message)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "message: expected an object in valid JSON, nested at most %d levels, "
                         "found '%.*s'",
                         json::kMostDepth, static_cast<int>(std::min<size_t>(message.size(), 40)),
                         message.data());
  }
  String others(out.members.allocator());
  MOE_TRY(others.append("{"));
  out.no_content = true;
  std::string_view key;
  std::string_view value;
  for (json::Parts parts(message); parts.next(&key, &value);) {
    if (value == "null") continue;
    if (json::spells(key, "role")) {
      MOE_TRY(take_text("role", value, out.role));
    } else if (json::spells(key, "content")) {
      MOE_TRY(take_text("content", value, out.content));
      out.no_content = false;
    } else if (json::spells(key, "reasoning_content")) {
      MOE_TRY(take_text("reasoning_content", value, out.thinking));
    } else if (const bool calls = json::spells(key, "tool_calls"); !calls || value != "[]") {
      out.calls = out.calls || calls;
      MOE_TRY(put_member(key, value, others));
    }
  }
  MOE_TRY(others.append("}"));
  if (others.view() == "{}") return {};
  return rewrite_calls(others.view(), false, out.members);
}

}  // namespace moe
