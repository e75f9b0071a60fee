// SPDX-License-Identifier: MIT
// Looks up a schema's types, and turns arguments of tags and of Gemma's mappings into JSON.
#include "src/text/chat/tools/argument.h"

#include "src/text/chat/json/scanner.h"
#include "src/text/chat/json/text.h"

namespace moe {
namespace {

uint32_t type_of_name(std::string_view quoted) {
  constexpr struct {
    std::string_view name;
    uint32_t type;
  } kTypes[] = {{"\"string\"", kStringType},  {"\"number\"", kNumberType},
                {"\"integer\"", kNumberType}, {"\"boolean\"", kBoolType},
                {"\"null\"", kNullType},      {"\"array\"", kListType},
                {"\"object\"", kObjectType}};
  for (const auto& t : kTypes) {
    if (t.name == quoted) return t.type;
  }
  return 0;
}

uint32_t type_of_value(std::string_view value) {
  switch (value.front()) {
    case '"':
      return kStringType;
    case '{':
      return kObjectType;
    case '[':
      return kListType;
    case 't':
    case 'f':
      return kBoolType;
    case 'n':
      return kNullType;
    default:
      return kNumberType;
  }
}

// The types that two parts of a schema allow together.
uint32_t in_both(uint32_t a, uint32_t b) {
  if (a == 0 || ((a & kAnyType) != 0 && b != 0)) return b;
  if (b == 0 || (b & kAnyType) != 0) return a;
  return a & b;
}

uint32_t schema_types(std::string_view schema, int depth = 0);

// An option that does not say its type, such as a $ref, allows every type.
uint32_t types_of_any(std::string_view list, int depth) {
  uint32_t types = 0;
  std::string_view key;
  std::string_view value;
  if (!json::is_list(list)) return 0;
  for (json::Parts parts(list); parts.next(&key, &value);) {
    const uint32_t option = schema_types(value, depth);
    types |= option == 0 ? kAnyType : option;
  }
  return types;
}

uint32_t types_of_all(std::string_view list, int depth) {
  uint32_t types = 0;
  std::string_view key;
  std::string_view value;
  if (!json::is_list(list)) return 0;
  for (json::Parts parts(list); parts.next(&key, &value);) {
    types = in_both(types, schema_types(value, depth));
  }
  return types;
}

uint32_t types_of_values(std::string_view list) {
  uint32_t types = 0;
  std::string_view key;
  std::string_view value;
  if (!json::is_list(list)) return 0;
  for (json::Parts parts(list); parts.next(&key, &value);) types |= type_of_value(value);
  return types;
}

uint32_t schema_types(std::string_view schema, int depth) {
  constexpr int kMostDepth = 4;
  uint32_t types = 0;
  std::string_view key;
  std::string_view value;
  if (!json::is_object(schema) || depth > kMostDepth) return 0;
  const std::string_view type = json::member(schema, "type");
  if (json::is_string(type)) return type_of_name(type);
  if (json::is_list(type)) {
    for (json::Parts parts(type); parts.next(&key, &value);) types |= type_of_name(value);
    return types;
  }
  types = types_of_any(json::member(schema, "anyOf"), depth + 1);
  types = in_both(types, types_of_any(json::member(schema, "oneOf"), depth + 1));
  types = in_both(types, types_of_all(json::member(schema, "allOf"), depth + 1));
  types = in_both(types, types_of_values(json::member(schema, "enum")));
  const std::string_view only = json::member(schema, "const");
  return only.empty() ? types : in_both(types, type_of_value(only));
}

// Reads Gemma's notation. Every function returns false for what is not of it.
class GemmaReader {
 public:
  GemmaReader(std::string_view text, std::string_view quote, String& out)
      : rest_(text), quote_(quote), out_(out) {}

  bool mapping(int depth) {
    if (depth >= json::kMostDepth || !take("{") || !put("{")) return false;
    for (bool first = true; !take("}"); first = false) {
      if (!first && (!take(",") || !put(", "))) return false;
      if (!key() || !put(": ") || !value(depth + 1)) return false;
    }
    return put("}");
  }
  bool at_end() {
    skip();
    return rest_.empty();
  }
  Status status() const { return status_; }

 private:
  void skip() {
    while (!rest_.empty() && json::is_space(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(std::string_view what) {
    skip();
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  bool put(std::string_view text) { return keep(out_.append(text)); }
  bool keep(const Status& status) {
    if (status_.ok()) status_ = status;
    return status_.ok();
  }
  bool string() {
    const size_t end = rest_.find(quote_);
    if (end == std::string_view::npos) return false;
    const bool done = keep(json::write_string(slice(rest_, 0, end), out_));
    rest_.remove_prefix(end + quote_.size());
    return done;
  }
  bool key() {
    if (take(quote_)) return string() && take(":");
    const size_t end = rest_.find(':');
    if (end == std::string_view::npos || end == 0) return false;
    const bool done = keep(json::write_string(json::trimmed(slice(rest_, 0, end)), out_));
    rest_.remove_prefix(end + 1);
    return done;
  }
  bool list(int depth) {
    if (depth >= json::kMostDepth || !put("[")) return false;
    for (bool first = true; !take("]"); first = false) {
      if (!first && (!take(",") || !put(", "))) return false;
      if (!value(depth + 1)) return false;
    }
    return put("]");
  }
  bool value(int depth) {
    skip();
    if (take(quote_)) return string();
    if (rest_.starts_with("{")) return mapping(depth);
    if (take("[")) return list(depth);
    const size_t end = std::min(rest_.find_first_of(",}]"), rest_.size());
    std::string_view text = json::trimmed(slice(rest_, 0, end));
    rest_.remove_prefix(end);
    if (text == "None") text = "null";
    return !text.empty() && json::is_valid(text) && put(text);
  }

  std::string_view rest_;
  const std::string_view quote_;
  String& out_;
  Status status_;
};

}  // namespace

std::string_view tool_named(std::string_view tools, std::string_view name) {
  std::string_view key;
  std::string_view tool;
  if (!json::is_list(tools)) return {};
  for (json::Parts parts(tools); parts.next(&key, &tool);) {
    const std::string_view function = json::member(tool, "function");
    const std::string_view inner = json::is_object(function) ? function : tool;
    const std::string_view found = json::member(inner, "name");
    if (json::is_string(found) && json::spells(found, name)) return inner;
  }
  return {};
}

uint32_t argument_types(std::string_view tools, std::string_view tool, std::string_view key) {
  return argument_types(json::member(tool_named(tools, tool), "parameters"), key);
}

uint32_t argument_types(std::string_view parameters, std::string_view key) {
  return schema_types(json::member(json::member(parameters, "properties"), key));
}

Status write_argument(uint32_t types, std::string_view text, String& out) {
  if (types == kStringType) return json::write_string(text, out);
  std::string_view value = json::trimmed(text);
  if ((types & kBoolType) != 0 && value == "True") value = "true";
  if ((types & kBoolType) != 0 && value == "False") value = "false";
  if ((types & kNullType) != 0 && value == "None") value = "null";
  const bool allowed = !value.empty() && json::is_valid(value) && !json::is_string(value) &&
                       (types == 0 || (types & (kAnyType | type_of_value(value))) != 0);
  if (allowed) return out.append(value);
  return json::write_string(text, out);
}

Status read_gemma_mapping(std::string_view text, std::string_view quote, String& out, bool* good) {
  GemmaReader reader(text, quote, out);
  *good = reader.mapping(0) && reader.at_end();
  return reader.status();
}

}  // namespace moe
