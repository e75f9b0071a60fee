// SPDX-License-Identifier: MIT
// Walks over valid JSON text: a value's end is where its brackets and quotes close.
#include "src/text/chat/json/text.h"

#include "src/base/number.h"
#include "src/text/characters/utf8.h"
#include "src/text/chat/json/scanner.h"

namespace moe::json {
namespace {

uint32_t hex_code(std::string_view digits) {
  uint32_t code = 0;
  for (const char c : digits) code = code << 4 | static_cast<uint32_t>(hex_value(c));
  return code;
}

// The length of a value at the beginning of `text`.
size_t value_size(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      if (c == '"' && depth == 0) return i + 1;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']' || c == ':' || is_space(c))) return i;
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return text.size();
}

// Takes an escape, or a byte, from the beginning of a string; returns its text, in `bytes`.
std::string_view take_character(std::string_view* rest, char bytes[4]) {
  constexpr std::string_view kFrom = "bfnrt";
  constexpr std::string_view kTo = "\b\f\n\r\t";
  const std::string_view text = *rest;
  size_t n_read = 1;
  size_t n_bytes = 1;
  bytes[0] = text[0];
  if (text[0] == '\\') {
    n_read = 2;
    const size_t at = kFrom.find(text[1]);
    bytes[0] = at == std::string_view::npos ? text[1] : kTo[at];
  }
  if (n_read == 2 && text[1] == 'u') {
    uint32_t code = hex_code(slice(text, 2, 4));
    n_read = 6;
    if (code >= 0xD800 && code < 0xDC00) {
      code = 0x10000 + ((code - 0xD800) << 10) + (hex_code(slice(text, 8, 4)) - 0xDC00);
      n_read = 12;
    }
    n_bytes = utf8_write(code, bytes);
  }
  rest->remove_prefix(n_read);
  return {bytes, n_bytes};
}

}  // namespace

bool is_object(std::string_view value) { return value.starts_with("{"); }
bool is_list(std::string_view value) { return value.starts_with("["); }
bool is_string(std::string_view value) { return value.starts_with("\""); }

Parts::Parts(std::string_view value) : rest_(slice(value, 1)), object_(is_object(value)) {}

void Parts::skip_space() {
  while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
}

std::string_view Parts::take_value() {
  skip_space();
  const std::string_view value = slice(rest_, 0, value_size(rest_));
  rest_.remove_prefix(value.size());
  skip_space();
  return value;
}

bool Parts::next(std::string_view* key, std::string_view* value) {
  skip_space();
  if (rest_.starts_with(",")) rest_.remove_prefix(1);
  skip_space();
  if (rest_.empty() || rest_.front() == '}' || rest_.front() == ']') return false;
  *key = {};
  if (object_) {
    *key = take_value();
    rest_.remove_prefix(1);  // the colon
  }
  *value = take_value();
  return true;
}

std::string_view member(std::string_view object, std::string_view name) {
  std::string_view found;
  std::string_view key;
  std::string_view value;
  if (!is_object(object)) return found;
  for (Parts parts(object); parts.next(&key, &value);) {
    if (spells(key, name)) found = value;
  }
  return found;
}

int nesting(std::string_view value) {
  int depth = 0;
  int most = 0;
  bool quoted = false;
  for (size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++i;
    if (quoted) continue;
    if (c == '{' || c == '[') most = std::max(most, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return most;
}

bool spells(std::string_view quoted, std::string_view text) {
  std::string_view rest = slice(quoted, 1, quoted.size() - 2);
  if (rest.find('\\') == std::string_view::npos) return rest == text;
  while (!rest.empty()) {
    char bytes[4];
    const std::string_view next = take_character(&rest, bytes);
    if (!text.starts_with(next)) return false;
    text.remove_prefix(next.size());
  }
  return text.empty();
}

Status read_string(std::string_view quoted, String& out) {
  std::string_view rest = slice(quoted, 1, quoted.size() - 2);
  while (!rest.empty()) {
    const size_t n = std::min(rest.find('\\'), rest.size());
    MOE_TRY(out.append(slice(rest, 0, n)));
    rest.remove_prefix(n);
    char bytes[4];
    if (!rest.empty()) MOE_TRY(out.append(take_character(&rest, bytes)));
  }
  return {};
}

Status write_string(std::string_view text, String& out) {
  constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
  constexpr std::string_view kTo = "\"\\nrtbf";
  constexpr char kHex[] = "0123456789abcdef";
  MOE_TRY(out.append("\""));
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool end = i == text.size();
    const bool plain =
        !end && static_cast<uint8_t>(text[i]) >= 0x20 && text[i] != '"' && text[i] != '\\';
    if (plain) continue;
    MOE_TRY(out.append(slice(text, begin, i - begin)));
    begin = i + 1;
    if (end) break;
    const size_t at = kFrom.find(text[i]);
    const char named[2] = {'\\', at == std::string_view::npos ? 'u' : kTo[at]};
    MOE_TRY(out.append({named, 2}));
    if (at != std::string_view::npos) continue;
    const char digits[4] = {'0', '0', kHex[(text[i] >> 4) & 15], kHex[text[i] & 15]};
    MOE_TRY(out.append({digits, 4}));
  }
  return out.append("\"");
}

}  // namespace moe::json
