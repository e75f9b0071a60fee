// SPDX-License-Identifier: MIT
#pragma once
// Reads a text of a grammar from its beginning to its end. Private to this folder.

#include "src/base/number.h"
#include "src/base/string.h"
#include "src/grammar/expression.h"
#include "src/text/characters/utf8.h"

namespace moe::grammar {

inline constexpr uint32_t kMaxDepth = 100;      // of parentheses inside each other
inline constexpr uint32_t kMaxCount = 1 << 20;  // in {m,n}

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  void go_to(size_t at) { at_ = at; }
  void skip(size_t n = 1) { at_ += n; }
  /// The next byte; 0 at the end.
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(char c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view what) {
    if (!slice(text_, at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  /// The next character (the text is valid UTF-8 and not at its end).
  uint32_t take_char() {
    const Utf8Char c = utf8_next(text_.data() + at_);
    at_ += c.length;
    return c.code;
  }
  std::string_view from(size_t begin) const { return slice(text_, begin, at_ - begin); }
  bool take_number(uint32_t* out) {
    if (!is_digit(peek())) return false;
    uint64_t value = 0;
    for (; is_digit(peek()); skip()) {
      value = std::min<uint64_t>(10 * value + static_cast<uint64_t>(peek() - '0'), kNoLimit - 1);
    }
    *out = static_cast<uint32_t>(value);
    return true;
  }
  /// Exactly n digits.
  bool take_hex(uint32_t n, uint32_t* out) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const int digit = hex_value(peek(i));
      if (digit < 0) return false;
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    skip(n);
    *out = value;
    return true;
  }
  /// After "{": m}, m,} or m,n}.
  bool take_counts(uint32_t* min, uint32_t* max) {
    if (!take_number(min)) return false;
    *max = *min;
    if (take(',') && !take_number(max)) *max = kNoLimit;
    return take('}');
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

inline Status check_counts(uint32_t min, uint32_t max, size_t at) {
  if (min <= kMaxCount && (max == kNoLimit || max <= kMaxCount) && min <= max) return {};
  return Status::error(MOE_ERR_RANGE, "byte %zu: expected counts up to %u, the smaller one first",
                       at, kMaxCount);
}

}  // namespace moe::grammar
