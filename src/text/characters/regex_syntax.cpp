// SPDX-License-Identifier: MIT
// Reads an Oniguruma pattern item by item and writes PCRE2's; refuses a construct that has no equal
// there.
#include "src/text/characters/regex_syntax.h"

#include "src/base/number.h"
#include "src/base/string.h"
#include "src/text/characters/regex_class.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr size_t kMaxDepth = 200;

// Outside of a class Oniguruma's \w has these too: superscript digits and fractions of Latin-1.
#define MOE_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe"

class Translator {
 public:
  Translator(std::string_view in, bool (*is_script)(void*, std::string_view), void* user,
             Array<char>& out)
      : in_(in), scripts_{is_script, user}, out_(out) {}

  Status run() {
    if (starts_with("(*")) return unsupported("a verb");
    while (i_ < in_.size()) MOE_TRY(item());
    return close_options(top_);
  }

 private:
  struct Group {
    size_t begin = 0;      // in `out_`
    size_t n_options = 0;  // groups to be closed with it
    bool ignore_case = false;
    bool extended = false;
  };

  Status unsupported(const char* what) const {
    return Status::error(MOE_ERR_UNSUPPORTED, "pattern: %s at byte %zu is not supported", what, i_);
  }
  bool starts_with(std::string_view text) const { return slice(in_, i_, text.size()) == text; }
  char peek(size_t ahead) const { return i_ + ahead < in_.size() ? in_[i_ + ahead] : '\0'; }
  Status put(std::string_view text) { return out_.append(text.data(), text.size()); }
  Status put_atom(std::string_view text, size_t n_read) {
    atom_ = out_.size();
    i_ += n_read;
    return put(text);
  }
  Status copy(size_t n) {
    const std::string_view text = slice(in_, i_, n);
    i_ += text.size();
    return put(text);
  }

  Status item() {
    const char c = in_[i_];
    switch (c) {
      case '\\':
        return escape();
      case '[':
        atom_ = out_.size();
        return class_to_pcre2(in_, &i_, group().ignore_case, scripts_, out_);
      case '(':
        return open_group();
      case ')':
        if (depth_ == 0) return Status::error(MOE_ERR_FORMAT, "pattern: a ) without its (");
        MOE_TRY(close_options(group()));
        atom_ = groups_[--depth_].begin;
        return copy(1);
      case '{':
        return interval();
      case '#':
        if (!group().extended) break;
        while (i_ < in_.size() && in_[i_] != '\n') ++i_;
        return {};
      case '^':
        return put_atom("(?:^(?:(?<!\\n)|(?!\\z)))", 1);
      case '|':
      case '*':
      case '+':
      case '?':
        return copy(1);
      default:
        break;
    }
    atom_ = out_.size();
    return copy(utf8_next(in_.data() + i_).length);
  }

  Status escape() {
    switch (peek(1)) {
      case 's':
        return put_atom("\\p{White_Space}", 2);
      case 'S':
        return put_atom("\\P{White_Space}", 2);
      case 'w':
        return put_atom("[" MOE_WORD "]", 2);
      case 'W':
        return put_atom("[^" MOE_WORD "]", 2);
      case 'h':
        return put_atom("[0-9A-Fa-f]", 2);
      case 'H':
        return put_atom("[^0-9A-Fa-f]", 2);
      case 'O':
        return put_atom("(?s:.)", 2);
      case 'b':
        return word_boundary("(?:(?<=", ")(?!", ")|(?<!", ")(?=");
      case 'B':
        return word_boundary("(?:(?<=", ")(?=", ")|(?<!", ")(?!");
      default:
        atom_ = out_.size();
        return plain_escape();
    }
  }

  Status word_boundary(std::string_view a, std::string_view b, std::string_view c,
                       std::string_view d) {
    constexpr std::string_view word = "[" MOE_WORD "]";
    MOE_TRY(put_atom(a, 2));
    for (const std::string_view part : {word, b, word, c, word, d, word}) MOE_TRY(put(part));
    return put("))");
  }

  Status plain_escape() {
    const char c = peek(1);
    if (c == '\0') return Status::error(MOE_ERR_FORMAT, "pattern: ends with a backslash");
    if (c == 'p' || c == 'P') return property();
    if (c == 'u' || c == 'x' || c == 'v' || c == 'Q' || c == 'E') {
      uint32_t code = 0;
      if (read_escaped(in_, &i_, &code)) return put_character(code, out_);
      return Status::error(MOE_ERR_FORMAT, "pattern: bad \\%c at byte %zu", c, i_);
    }
    if (std::string_view("GKyYMC").find(c) != std::string_view::npos) {
      return unsupported("this escape");
    }
    MOE_TRY(copy(1));
    return copy(utf8_next(in_.data() + i_).length);
  }

  // A property is not changed by (?i) here, unlike in a class.
  Status property() {
    Array<char> items(out_.allocator());
    bool negated = false;
    MOE_TRY(property_items(in_, &i_, scripts_, &negated, items));
    const std::string_view text(items.data(), items.size());
    const bool one = text.starts_with("\\p{") && text.find('}') + 1 == text.size();
    if (group().ignore_case) MOE_TRY(put("(?-i:"));
    if (one) {
      MOE_TRY(put(negated ? "\\P" : "\\p"));
      MOE_TRY(put(slice(text, 2)));
    } else {
      MOE_TRY(put(negated ? "[^" : "["));
      MOE_TRY(put(text));
      MOE_TRY(put("]"));
    }
    return group().ignore_case ? put(")") : Status();
  }

  Status open_group() {
    if (depth_ == kMaxDepth) return unsupported("nesting this deep");
    if (peek(1) == '*') return unsupported("a verb");
    if (peek(1) == '?' && peek(2) == '#') {  // a comment
      while (i_ < in_.size() && in_[i_] != ')') i_ += in_[i_] == '\\' ? 2U : 1U;
      if (i_ >= in_.size()) return Status::error(MOE_ERR_FORMAT, "pattern: a ( without its )");
      ++i_;
      return {};
    }
    size_t n = 2;
    while (peek(n) == 'i' || peek(n) == 'm' || peek(n) == 'x' || peek(n) == '-') ++n;
    const bool options = peek(1) == '?' && n > 2 && (peek(n) == ':' || peek(n) == ')');
    if (options && peek(n) == ')') return isolated_options(n);
    Group inner = group();
    inner.begin = out_.size();
    inner.n_options = 0;
    groups_[depth_++] = inner;
    if (options) return read_options(n, &groups_[depth_ - 1]);
    MOE_TRY(copy(1));
    return peek(0) == '?' ? group_head() : Status();
  }

  // (?i) holds up to the end of the group, alternatives included: a(?i)b|c is a(?i:b|c).
  Status isolated_options(size_t n) {
    Group& around = group();
    ++around.n_options;
    MOE_TRY(read_options(n, &around));
    out_.back() = ':';
    return {};
  }

  Status close_options(const Group& g) {
    for (size_t k = 0; k < g.n_options; ++k) MOE_TRY(put(")"));
    return {};
  }

  // "(?mi-x:" up to the byte n ahead.
  Status read_options(size_t n, Group* g) {
    bool on = true;
    for (size_t k = 0; k <= n; ++k, ++i_) {
      const char letter = in_[i_];
      if (letter == '-') on = false;
      if (letter == 'i') g->ignore_case = on;
      if (letter == 'x') g->extended = on;
      MOE_TRY(out_.push(letter == 'm' ? 's' : letter));
    }
    return {};
  }

  // ?: ?= ?! ?> ?<= ?<! ?<name> ; other letters are options with another meaning in PCRE2.
  Status group_head() {
    const char c = peek(1);
    if (c != ':' && c != '=' && c != '!' && c != '>' && c != '<') return unsupported("this group");
    MOE_TRY(copy(2));
    if (c == '<' && (peek(0) == '=' || peek(0) == '!')) return copy(1);
    if (c == '<') {
      while (i_ < in_.size() && in_[i_] != '>') MOE_TRY(copy(1));
    }
    return {};
  }

  Status interval() {
    size_t n = 1;
    while (is_digit(peek(n))) ++n;
    const size_t n_low = n - 1;
    const bool range = peek(n) == ',';
    if (range) ++n;
    const size_t n_high_start = n;
    while (is_digit(peek(n))) ++n;
    if (peek(n) != '}' || (n_low == 0 && n == n_high_start)) {  // not an interval, so literal
      return put_atom("\\{", 1);
    }
    const char next = peek(n + 1);
    const bool wrap = next == '+' || (next == '?' && !range);
    if (wrap) MOE_TRY(insert_at_atom("(?:"));
    MOE_TRY(copy(1));
    if (n_low == 0) MOE_TRY(put("0"));
    MOE_TRY(copy(n));
    return wrap ? put(")") : Status();
  }

  Status insert_at_atom(std::string_view text) {
    const size_t n = out_.size();
    MOE_TRY(put(text));
    std::rotate(out_.begin() + atom_, out_.begin() + n, out_.end());
    return {};
  }

  Group& group() { return depth_ == 0 ? top_ : groups_[depth_ - 1]; }

  std::string_view in_;
  ScriptNames scripts_;
  Array<char>& out_;
  size_t i_ = 0;
  size_t atom_ = 0;  // start in `out_` of the atom that a quantifier would repeat
  Group top_;
  Group groups_[kMaxDepth] = {};
  size_t depth_ = 0;
};

}  // namespace

Status to_pcre2(std::string_view pattern, bool (*is_script)(void*, std::string_view), void* user,
                Array<char>& out) {
  if (!utf8_is_valid(pattern)) return Status::error(MOE_ERR_FORMAT, "pattern: not UTF-8");
  return Translator(pattern, is_script, user, out).run();
}

}  // namespace moe
