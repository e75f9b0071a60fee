#include "src/text/characters/regex_syntax.h"

#include "src/base/string.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr std::string_view kWordItems = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexItems = "0-9A-Fa-f";
constexpr size_t kMaxDepth = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Translator {
 public:
  Translator(std::string_view in, bool (*is_script)(void*, std::string_view), void* user,
             Array<char>& out)
      : in_(in), is_script_(is_script), user_(user), out_(out) {}

  Status run() {
    if (starts_with("(*")) return unsupported("a verb");
    while (i_ < in_.size()) MOE_TRY(in_class_ ? class_item() : item());
    if (in_class_) return Status::error(MOE_ERR_FORMAT, "pattern: a class without its ]");
    return {};
  }

 private:
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
        return open_class();
      case '(':
        return open_group();
      case ')':
        if (depth_ == 0) return Status::error(MOE_ERR_FORMAT, "pattern: a ) without its (");
        atom_ = groups_[--depth_];
        return copy(1);
      case '{':
        return interval();
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
        return put_atom("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]", 2);
      case 'W':
        return put_atom("[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]", 2);
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
        return shared_escape();
    }
  }

  Status word_boundary(std::string_view a, std::string_view b, std::string_view c,
                       std::string_view d) {
    constexpr std::string_view word = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
    MOE_TRY(put_atom(a, 2));
    for (const std::string_view part : {word, b, word, c, word, d, word}) MOE_TRY(put(part));
    return put("))");
  }

  // Escapes that are the same inside and outside a class.
  Status shared_escape() {
    const char c = peek(1);
    if (c == '\0') return Status::error(MOE_ERR_FORMAT, "pattern: ends with a backslash");
    if (c == 'p' || c == 'P') return property();
    if (c == 'v') {
      i_ += 2;
      return put("\\x0b");
    }
    if (c == 'u') {
      for (size_t k = 2; k < 6; ++k) {
        if (!is_hex(peek(k))) return Status::error(MOE_ERR_FORMAT, "pattern: bad \\u");
      }
      MOE_TRY(put("\\x{"));
      i_ += 2;
      MOE_TRY(copy(4));
      return put("}");
    }
    if (c == 'Q' || c == 'E') {  // plain letters in Oniguruma, quoting in PCRE2
      ++i_;
      return copy(1);
    }
    MOE_TRY(copy(1));
    return copy(utf8_next(in_.data() + i_).length);
  }

  Status property() {
    if (peek(2) != '{') return copy(3);
    const size_t name = i_ + 3;
    size_t end = name;
    while (end < in_.size() && in_[end] != '}') ++end;
    if (end == in_.size()) return Status::error(MOE_ERR_FORMAT, "pattern: a property without }");
    std::string_view text = slice(in_, name, end - name);
    const bool negated = !text.empty() && text[0] == '^';
    if (negated) text.remove_prefix(1);
    const bool script = text.size() > 2 && is_script_(user_, text);
    MOE_TRY(copy(3));
    if (negated) MOE_TRY(put("^"));
    if (script) MOE_TRY(put("sc:"));
    i_ = end;
    MOE_TRY(put(text));
    return copy(1);
  }

  Status open_class() {
    atom_ = out_.size();
    in_class_ = true;
    MOE_TRY(copy(1));
    if (peek(0) == '^') MOE_TRY(copy(1));
    if (peek(0) == ']') {  // a first ']' is literal
      ++i_;
      return put("\\]");
    }
    return {};
  }

  static bool is_set_escape(char c) {
    return c == 's' || c == 'S' || c == 'w' || c == 'd' || c == 'D' || c == 'h' || c == 'p' ||
           c == 'P';
  }

  Status class_item() {
    const char c = in_[i_];
    const bool after_set = std::exchange(after_set_, false);
    if (c == ']') {
      in_class_ = false;
      return copy(1);
    }
    if (c == '&' && peek(1) == '&') return unsupported("an intersection of classes");
    if (c == '[') return posix_class();
    if (c == '-' && peek(1) != ']' && (after_set || (peek(1) == '\\' && is_set_escape(peek(2))))) {
      ++i_;  // a set cannot be a range end, so the hyphen is literal
      return put("\\-");
    }
    if (c != '\\') return copy(utf8_next(in_.data() + i_).length);
    after_set_ = is_set_escape(peek(1));
    switch (peek(1)) {
      case 's':
        i_ += 2;
        return put("\\p{White_Space}");
      case 'S':
        i_ += 2;
        return put("\\P{White_Space}");
      case 'w':
        i_ += 2;
        return put(kWordItems);
      case 'h':
        i_ += 2;
        return put(kHexItems);
      case 'W':
      case 'H':
      case 'R':
      case 'X':
        return unsupported("this escape in a class");
      default:
        return shared_escape();
    }
  }

  Status posix_class() {
    if (peek(1) != ':') return unsupported("a class inside a class");
    size_t n = 2;
    while (i_ + n < in_.size() && peek(n) != ']') ++n;
    after_set_ = true;
    return copy(n + 1);
  }

  Status open_group() {
    if (depth_ == kMaxDepth) return unsupported("nesting this deep");
    groups_[depth_++] = out_.size();
    if (peek(1) == '*') return unsupported("a verb");
    MOE_TRY(copy(1));
    if (peek(0) != '?') return {};
    if (peek(1) == '#') {
      while (i_ < in_.size() && in_[i_] != ')') MOE_TRY(copy(1));
      return {};
    }
    size_t n = 1;
    while (peek(n) == 'i' || peek(n) == 'm' || peek(n) == 'x' || peek(n) == '-') ++n;
    if (n == 1 || (peek(n) != ':' && peek(n) != ')')) return group_head();
    for (; n > 0; --n, ++i_) {
      const char letter = in_[i_] == 'm' ? 's' : in_[i_];
      MOE_TRY(out_.push(letter));
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

  std::string_view in_;
  bool (*is_script_)(void*, std::string_view);
  void* user_;
  Array<char>& out_;
  size_t i_ = 0;
  size_t atom_ = 0;  // start in `out_` of the atom that a quantifier would repeat
  size_t groups_[kMaxDepth] = {};
  size_t depth_ = 0;
  bool in_class_ = false;
  bool after_set_ = false;
};

}  // namespace

Status to_pcre2(std::string_view pattern, bool (*is_script)(void*, std::string_view), void* user,
                Array<char>& out) {
  if (!utf8_is_valid(pattern)) return Status::error(MOE_ERR_FORMAT, "pattern: not UTF-8");
  return Translator(pattern, is_script, user, out).run();
}

}  // namespace moe
