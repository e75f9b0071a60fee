// SPDX-License-Identifier: MIT
// Splits a template into tokens: text between tags, and the names, numbers, strings and operators
// inside them.
#include "src/base/number.h"
#include "src/base/string.h"
#include "src/text/characters/utf8.h"
#include "src/text/chat/jinja/program.h"

namespace moe::jinja {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_name(char c) { return is_letter(c) || c == '_' || is_digit(c); }

class Lexer {
 public:
  Lexer(Program& program, Array<Token>& tokens)
      : text_(program.text), n_(static_cast<uint32_t>(program.text.size())), tokens_(tokens) {}

  Status run() {
    while (at_ < n_) {
      const uint32_t open = find_open();
      MOE_TRY(put_data(open));
      if (open == n_) break;
      MOE_TRY(read_tag(open));
    }
    return push(TokenKind::kEnd, n_, n_);
  }

 private:
  char peek(uint32_t i) const { return i < n_ ? text_[i] : '\0'; }
  void move_to(uint32_t to) {
    for (; at_ < to; ++at_) line_ += text_[at_] == '\n' ? 1U : 0U;
  }
  Status push(TokenKind kind, uint32_t begin, uint32_t end) {
    return tokens_.push({kind, line_, {begin, end - begin}});
  }
  Status fault(const char* what) const {
    return Status::error(MOE_ERR_FORMAT, "line %u: %s", line_, what);
  }

  uint32_t find_open() const {
    for (uint32_t i = at_; i + 1 < n_; ++i) {
      const char c = text_[i + 1];
      if (text_[i] == '{' && (c == '{' || c == '%' || c == '#')) return i;
    }
    return n_;
  }

  // Text up to a tag, without the white space that the tag strips.
  Status put_data(uint32_t open) {
    uint32_t end = open;
    const char sign = open < n_ ? peek(open + 2) : '+';
    if (sign == '-') {
      while (end > at_ && is_space(text_[end - 1])) --end;
    } else if (sign != '+' && text_[open + 1] != '{') {
      uint32_t begin = end;
      while (begin > at_ && is_space(text_[begin - 1]) && text_[begin - 1] != '\n') --begin;
      if (begin == 0 || text_[begin - 1] == '\n') end = begin;
    }
    if (end > at_) MOE_TRY(push(TokenKind::kData, at_, end));
    move_to(open);
    return {};
  }

  // After a tag: "-" strips all white space, a block or comment one line feed unless "+".
  void close_tag(char sign, bool output) {
    if (sign == '-') {
      while (at_ < n_ && is_space(text_[at_])) move_to(at_ + 1);
    } else if (sign != '+' && !output && peek(at_) == '\n') {
      move_to(at_ + 1);
    }
  }

  Status read_tag(uint32_t open) {
    const char kind = text_[open + 1];
    const char sign = peek(open + 2);
    move_to(open + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') return skip_comment();
    if (kind == '%' && take_raw("raw", false)) return read_raw();
    const bool output = kind == '{';
    MOE_TRY(push(output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, open, open + 2));
    for (uint32_t nesting = 0;;) {
      while (at_ < n_ && is_space(text_[at_])) move_to(at_ + 1);
      if (at_ >= n_) return fault("a tag without an end");
      if (nesting == 0 && at_end(output)) return end_tag(output);
      MOE_TRY(read_token(&nesting));
    }
  }

  // Moves past "raw %}" or "endraw %}" if it stands here. Only the latter strips a line feed.
  bool take_raw(std::string_view name, bool strips) {
    uint32_t i = at_;
    while (is_space(peek(i))) ++i;
    if (slice({text_.data(), n_}, i, name.size()) != name) return false;
    i += static_cast<uint32_t>(name.size());
    while (is_space(peek(i))) ++i;
    const char sign = peek(i);
    if (sign == '-' || (sign == '+' && strips)) ++i;
    if (peek(i) != '%' || peek(i + 1) != '}') return false;
    move_to(i + 2);
    close_tag(sign, !strips);
    return true;
  }

  // Text up to {% endraw %}, which strips like any tag in front of it.
  Status read_raw() {
    const uint32_t begin = at_;
    for (uint32_t i = begin; i + 1 < n_; ++i) {
      if (text_[i] != '{' || text_[i + 1] != '%') continue;
      const char sign = peek(i + 2);
      at_ = i + (sign == '-' || sign == '+' ? 3 : 2);
      const uint32_t line = line_;
      const bool ends = take_raw("endraw", true);
      const uint32_t after = at_;
      const uint32_t after_line = line_;
      at_ = begin;
      line_ = line;
      if (!ends) continue;
      MOE_TRY(put_data(i));
      line_ += after_line - line;
      at_ = after;
      return {};
    }
    return fault("{% raw %} without {% endraw %}");
  }

  bool at_end(bool output) const {
    const char c = text_[at_];
    const uint32_t i = at_ + (c == '-' || (c == '+' && !output) ? 1 : 0);
    return peek(i) == (output ? '}' : '%') && peek(i + 1) == '}';
  }

  Status end_tag(bool output) {
    const char sign = text_[at_];
    MOE_TRY(push(output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, at_, at_));
    move_to(at_ + (sign == '-' || sign == '+' ? 3 : 2));
    close_tag(sign, output);
    return {};
  }

  Status skip_comment() {
    uint32_t end = at_;
    while (end + 1 < n_ && (text_[end] != '#' || text_[end + 1] != '}')) ++end;
    if (end + 1 >= n_) return fault("a comment without an end");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    move_to(end + 2);
    close_tag(sign, false);
    return {};
  }

  // Digits and underscores have been read up to `end`; a fraction and an exponent may follow. Not
  // behind a point, where digits are an index: "a.0.1".
  uint32_t number_end(uint32_t begin, uint32_t end) const {
    if (begin > 0 && text_[begin - 1] == '.') return end;
    uint32_t i = begin;
    while (is_digit(peek(i)) || peek(i) == '_') ++i;
    if (peek(i) == '.' && is_digit(peek(i + 1))) {
      for (++i; is_digit(peek(i)) || peek(i) == '_';) ++i;
    }
    if (peek(i) == 'e' || peek(i) == 'E') {
      const uint32_t digits = i + (peek(i + 1) == '+' || peek(i + 1) == '-' ? 2 : 1);
      if (is_digit(peek(digits))) {
        for (i = digits; is_digit(peek(i)) || peek(i) == '_';) ++i;
      }
    }
    return std::max(i, end);
  }

  Status read_token(uint32_t* nesting) {
    const uint32_t begin = at_;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return read_string(c);
    uint32_t end = at_ + 1;
    if (is_name(c)) {
      while (is_name(peek(end))) ++end;
      if (is_digit(c)) end = number_end(begin, end);
      MOE_TRY(push(is_digit(c) ? TokenKind::kNumber : TokenKind::kName, begin, end));
      move_to(end);
      return {};
    }
    const char next = peek(end);
    const bool pair = (next == '=' && (c == '=' || c == '!' || c == '<' || c == '>')) ||
                      (c == '/' && next == '/') || (c == '*' && next == '*');
    if (pair) ++end;
    if (!pair && (c == '\0' || std::strchr("+-*/%~<>=.,:|()[]{}", c) == nullptr)) {
      return Status::error(MOE_ERR_FORMAT, "line %u: unexpected character '%c'", line_,
                           c > ' ' && c < 0x7F ? c : '?');
    }
    if (c == '(' || c == '[' || c == '{') ++*nesting;
    if ((c == ')' || c == ']' || c == '}') && *nesting > 0) --*nesting;
    MOE_TRY(push(TokenKind::kOperator, begin, end));
    move_to(end);
    return {};
  }

  Status read_string(char quote) {
    uint32_t end = at_ + 1;
    bool escaped = false;
    while (end < n_ && text_[end] != quote) {
      escaped = escaped || text_[end] == '\\';
      end += text_[end] == '\\' ? 2U : 1U;
    }
    if (end >= n_) return fault("a string without an end");
    if (escaped) {
      MOE_TRY(unescape(at_ + 1, end));
    } else {
      MOE_TRY(push(TokenKind::kString, at_ + 1, end));
    }
    move_to(end + 1);
    return {};
  }

  Status unescape(uint32_t at, uint32_t end) {
    const auto begin = static_cast<uint32_t>(text_.size());
    while (at < end) {
      const char c = text_[at++];
      if (c != '\\') {
        MOE_TRY(text_.push(c));
        continue;
      }
      MOE_TRY(put_escape(&at, end));
    }
    return push(TokenKind::kString, begin, static_cast<uint32_t>(text_.size()));
  }

  Status put_escape(uint32_t* at, uint32_t end) {
    static constexpr char kFrom[] = "ntrbfav\\'\"";
    static constexpr char kTo[] = "\n\t\r\b\f\a\v\\'\"";
    const char c = text_[(*at)++];
    for (size_t i = 0; i + 1 < sizeof kFrom; ++i) {
      if (c == kFrom[i]) return text_.push(kTo[i]);
    }
    if (c == '\n') return {};
    if (c == 'x' || c == 'u' || c == 'U') {
      uint32_t code = 0;
      for (int i = 0; i < (c == 'x' ? 2 : c == 'u' ? 4 : 8); ++i) {
        const int digit = *at < end ? hex_value(text_[*at]) : -1;
        if (digit < 0) return fault("a string with a damaged escape");
        code = code * 16 + static_cast<uint32_t>(digit);
        ++*at;
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        return fault("a string with half a character");
      char bytes[4];
      return text_.append(bytes, utf8_write(code, bytes));
    }
    if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && *at < end && text_[*at] >= '0' && text_[*at] <= '7'; ++i) {
        code = code * 8 + static_cast<uint32_t>(text_[(*at)++] - '0');
      }
      char bytes[4];
      return text_.append(bytes, utf8_write(code, bytes));
    }
    if (c == 'N') return fault("a string with a character's name");
    MOE_TRY(text_.push('\\'));  // Python preserves unknown escapes
    return text_.push(c);
  }

  Array<char>& text_;
  const uint32_t n_;  // bytes of source
  Array<Token>& tokens_;
  uint32_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace

Status split_tokens(Program& program, Array<Token>& tokens) { return Lexer(program, tokens).run(); }

}  // namespace moe::jinja
