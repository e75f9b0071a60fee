// SPDX-License-Identifier: MIT
// Makes calls of their parts: names, arguments as JSON, ids.
#include "src/text/characters/utf8.h"
#include "src/text/chat/json/scanner.h"
#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/argument.h"
#include "src/text/chat/tools/parser.h"

namespace moe {
namespace {

std::string_view first_member(std::string_view object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string_view value = json::member(object, name);
    if (!value.empty()) return value;
  }
  return {};
}

// A conversation takes a call back as a part of a message, in which its arguments stand four levels
// deep: {"tool_calls": [{"function": {"arguments": ...}}]}.
bool fit_a_message(std::string_view arguments) {
  constexpr int kLevels = 4;
  return json::nesting(arguments) <= json::kMostDepth - kLevels;
}

// Nine letters and digits, which is what Mistral's templates ask for.
void make_id(uint64_t seed, int index, char out[9]) {
  uint64_t x = seed * 64 + static_cast<uint64_t>(index) + 1;
  for (const uint64_t factor : {0xBF58476D1CE4E5B9ULL, 0x94D049BB133111EBULL}) {
    x = (x ^ (x >> 30)) * factor;
  }
  x ^= x >> 31;
  for (int i = 0; i < 9; ++i, x /= 36) {
    out[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[x % 36];
  }
}

}  // namespace

Status ToolCallParser::json_calls(std::string_view value, bool* good) {
  *good = false;
  if (too_long()) return {};
  if (json::is_object(value)) {
    MOE_TRY(json_call(value, false, good));
    return *good ? json_call(value, true, good) : Status();
  }
  for (const bool report : {false, true}) {
    std::string_view key;
    std::string_view element;
    bool all = true;
    for (json::Parts parts(value); parts.next(&key, &element);) {
      *good = true;  // unless the list is empty
      bool one = false;
      MOE_TRY(json_call(element, report, &one));
      all = all && one;
    }
    *good = *good && all;
    if (!*good) break;
  }
  return {};
}

Status ToolCallParser::json_call(std::string_view object, bool report_it, bool* good) {
  *good = false;
  const std::string_view inner = json::member(object, "function");
  if (json::is_object(inner)) object = inner;
  const std::string_view name = first_member(object, {"name", "tool_name"});
  if (!json::is_string(name)) return {};
  std::string_view arguments = first_member(object, {"arguments", "parameters"});
  name_.clear();
  id_.clear();
  arguments_.clear();
  MOE_TRY(json::read_string(name, name_));
  if (name_.empty() || name_.size() > kMostName) return {};
  if (bare_ && !has_tool(name_.view())) return {};  // it must at least name one
  const std::string_view id = first_member(object, {"id", "tool_call_id"});
  if (json::is_string(id)) MOE_TRY(json::read_string(id, id_));
  if (arguments.empty() || arguments == "null") arguments = "{}";
  if (json::is_string(arguments)) {  // a text of JSON
    MOE_TRY(json::read_string(arguments, arguments_));
    arguments = json::trimmed(arguments_.view());
    if (!json::is_valid(arguments)) return {};
  }
  *good = json::is_object(arguments) && fit_a_message(arguments);
  return *good && report_it ? report(id_.view(), name_.view(), arguments) : Status();
}

Status ToolCallParser::named_call(std::string_view arguments, bool* good) {
  *good = !too_long() && !name_.empty() && name_.size() <= kMostName && fit_a_message(arguments);
  // Bytes of a reply need not be characters.
  *good =
      *good && utf8_is_valid(arguments) && utf8_is_valid(name_.view()) && utf8_is_valid(id_.view());
  return *good ? report(id_.view(), name_.view(), arguments) : Status();
}

Status ToolCallParser::gemma_call(std::string_view text, bool* good) {
  constexpr std::string_view kCall = "call:";
  text = json::trimmed(text);
  const size_t brace = text.find('{');
  *good = text.starts_with(kCall) && brace != std::string_view::npos;
  if (!*good) return {};
  MOE_TRY(name_.assign(json::trimmed(slice(text, kCall.size(), brace - kCall.size()))));
  arguments_.clear();
  MOE_TRY(read_gemma_mapping(slice(text, brace), mark(Mark::kKeyOpen), arguments_, good));
  *good = *good && json::is_valid(arguments_.view());
  return *good ? named_call(arguments_.view(), good) : Status();
}

Status ToolCallParser::add_argument(std::string_view key, std::string_view text) {
  if (arguments_.size() > 1) MOE_TRY(arguments_.append(", "));
  MOE_TRY(json::write_string(key, arguments_));
  MOE_TRY(arguments_.append(": "));
  return write_argument(argument_types(tools_, name_.view(), key), text, arguments_);
}

bool ToolCallParser::has_tool(std::string_view name) const {
  return !tool_named(tools_, name).empty();
}

Status ToolCallParser::report(std::string_view id, std::string_view name,
                              std::string_view arguments) {
  const size_t begin = out_.size();
  char made[9];
  make_id(seed_, n_calls_, made);
  MOE_TRY(out_.append("{\"id\": "));
  MOE_TRY(json::write_string(id.empty() ? std::string_view(made, 9) : id, out_));
  MOE_TRY(out_.append(", \"name\": "));
  MOE_TRY(json::write_string(name, out_));
  MOE_TRY(out_.append(", \"arguments\": "));
  MOE_TRY(out_.append(arguments));
  MOE_TRY(out_.append("}"));
  ++n_calls_;
  ++n_in_section_;
  begin_ = pos_;
  return events_.push({true, begin, out_.size()});
}

}  // namespace moe
