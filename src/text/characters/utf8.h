// SPDX-License-Identifier: MIT
#pragma once
// UTF-8, after the Unicode standard's table 3-7 (no surrogates, no overlong forms).

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/text/spec.h"

namespace moe {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Char {
  enum Kind { kValid, kInvalid, kPartial };  // partial: the text ends inside a character
  Kind kind;
  uint32_t length;  // bytes; if invalid or partial, of the longest valid prefix
  uint32_t code;
};

/// The character at the start of text[0, n), n > 0.
inline Utf8Char utf8_read(const char* text, size_t n) {
  const auto* p = reinterpret_cast<const uint8_t*>(text);
  const uint32_t lead = p[0];
  if (lead < 0x80) return {Utf8Char::kValid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Char::kInvalid, 1, 0xFFFD};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t low = 0x80;  // the valid range of the second byte depends on the first
  uint32_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  uint32_t code = lead & (0x7FU >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if (i == n) return {Utf8Char::kPartial, i, 0xFFFD};
    if (p[i] < low || p[i] > high) return {Utf8Char::kInvalid, i, 0xFFFD};
    code = (code << 6) | (p[i] & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Char::kValid, length, code};
}

/// The same for valid text.
inline Utf8Char utf8_next(const char* text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text);
  if (p[0] < 0x80) return {Utf8Char::kValid, 1, p[0]};
  if (p[0] < 0xE0) return {Utf8Char::kValid, 2, ((p[0] & 0x1FU) << 6) | (p[1] & 0x3FU)};
  if (p[0] < 0xF0) {
    return {Utf8Char::kValid, 3, ((p[0] & 0x0FU) << 12) | ((p[1] & 0x3FU) << 6) | (p[2] & 0x3FU)};
  }
  return {Utf8Char::kValid, 4,
          ((p[0] & 7U) << 18) | ((p[1] & 0x3FU) << 12) | ((p[2] & 0x3FU) << 6) | (p[3] & 0x3FU)};
}

/// Length of the character that ends just before `end` in valid text.
inline uint32_t utf8_previous_length(const char* end) {
  uint32_t n = 1;
  while ((static_cast<uint8_t>(*(end - n)) & 0xC0) == 0x80) ++n;
  return n;
}

/// Writes a character; returns the number of bytes (up to 4).
inline uint32_t utf8_write(uint32_t code, char* out) {
  const auto put = [out](uint32_t i, uint32_t value) { out[i] = static_cast<char>(value); };
  if (code < 0x80) {
    put(0, code);
    return 1;
  }
  if (code < 0x800) {
    put(0, 0xC0 | (code >> 6));
    put(1, 0x80 | (code & 0x3F));
    return 2;
  }
  if (code < 0x10000) {
    put(0, 0xE0 | (code >> 12));
    put(1, 0x80 | ((code >> 6) & 0x3F));
    put(2, 0x80 | (code & 0x3F));
    return 3;
  }
  put(0, 0xF0 | (code >> 18));
  put(1, 0x80 | ((code >> 12) & 0x3F));
  put(2, 0x80 | ((code >> 6) & 0x3F));
  put(3, 0x80 | (code & 0x3F));
  return 4;
}

/// Length of the longest valid prefix of `text`.
inline size_t utf8_valid_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Char c = utf8_read(text.data() + i, text.size() - i);
    if (c.kind != Utf8Char::kValid) break;
    i += c.length;
  }
  return i;
}

inline bool utf8_is_valid(std::string_view text) { return utf8_valid_prefix(text) == text.size(); }

/// True if `text` is exactly one character.
inline bool is_one_character(std::string_view text) {
  if (text.empty()) return false;
  const Utf8Char c = utf8_read(text.data(), text.size());
  return c.kind == Utf8Char::kValid && c.length == text.size();
}

/// Replaces every maximal invalid part by U+FFFD; *out is `text` itself if it is valid, otherwise
/// the content of `storage`.
inline Status utf8_repair(std::string_view text, Array<char>& storage, std::string_view* out) {
  size_t valid = utf8_valid_prefix(text);
  if (valid == text.size()) {
    *out = text;
    return {};
  }
  storage.clear();
  while (!text.empty()) {
    MOE_TRY(storage.append(text.data(), valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    MOE_TRY(storage.append(kReplacement.data(), kReplacement.size()));
    text.remove_prefix(utf8_read(text.data(), text.size()).length);
    valid = utf8_valid_prefix(text);
  }
  *out = {storage.data(), storage.size()};
  return {};
}

/// Checks a step's content: valid UTF-8 of at most kMaxContentBytes.
inline Status check_content(const TextStepSpec& spec) {
  if (spec.content.size() <= kMaxContentBytes && utf8_is_valid(spec.content)) return {};
  return Status::error(MOE_ERR_FORMAT, "content: expected at most %zu bytes of UTF-8",
                       kMaxContentBytes);
}

}  // namespace moe
