// SPDX-License-Identifier: MIT
// Parses regular expressions: those of ECMA-262 with the flag u, as far as they are regular.
#include "src/base/number.h"
#include "src/grammar/cursor.h"

namespace moe::grammar {
namespace {

Status add_class(char name, CharSet& to) {
  switch (name) {
    case 'd':
      return to.add('0', '9');
    case 'w':
      MOE_TRY(to.add('0', '9'));
      MOE_TRY(to.add('A', 'Z'));
      MOE_TRY(to.add('_', '_'));
      return to.add('a', 'z');
    default: {  // s
      static constexpr CharRange kSpaces[] = {
          {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
      for (const CharRange& r : kSpaces) MOE_TRY(to.add(r.low, r.high));
      return {};
    }
  }
}

class Parser {
 public:
  Parser(std::string_view text, Expressions& to) : in_(text), to_(to) {}

  Status parse(uint32_t* out) {
    MOE_TRY(choice(0, out));
    if (in_.at_end()) return {};
    return error("an unmatched \")\"");
  }

 private:
  Status error(const char* what) const {
    return Status::error(MOE_ERR_FORMAT, "regular expression, byte %zu: %s", in_.at(), what);
  }
  Status unsupported(const char* what) const {
    return Status::error(MOE_ERR_UNSUPPORTED, "regular expression, byte %zu: %s", in_.at(), what);
  }

  Status choice(uint32_t depth, uint32_t* out) {
    if (depth > kMaxDepth) return unsupported("more than 100 groups inside each other");
    Array<uint32_t> branches(to_.allocator());
    do {
      uint32_t branch = 0;
      MOE_TRY(sequence(depth, &branch));
      MOE_TRY(branches.push(branch));
    } while (in_.take('|'));
    return to_.add_list(Expr::kChoice, branches.span(), out);
  }

  Status sequence(uint32_t depth, uint32_t* out) {
    Array<uint32_t> items(to_.allocator());
    while (!in_.at_end() && in_.peek() != '|' && in_.peek() != ')') {
      uint32_t item = 0;
      MOE_TRY(atom(depth, &item));
      MOE_TRY(quantified(&item));
      MOE_TRY(items.push(item));
    }
    return to_.add_list(Expr::kSequence, items.span(), out);
  }

  Status quantified(uint32_t* item) {
    const size_t at = in_.at();
    uint32_t min = 0;
    uint32_t max = kNoLimit;
    if (in_.take('*')) {
    } else if (in_.take('+')) {
      min = 1;
    } else if (in_.take('?')) {
      max = 1;
    } else if (in_.peek() == '{' && is_digit(in_.peek(1))) {
      in_.skip();
      if (!in_.take_counts(&min, &max)) return error("expected {m}, {m,} or {m,n}");
      MOE_TRY(check_counts(min, max, at).with_context("regular expression"));
    } else {
      return {};
    }
    const Expr::Kind kind = to_[*item].kind;
    if (kind == Expr::kBegin || kind == Expr::kFinish) return error("an anchor that is repeated");
    (void)in_.take('?');  // which match is found first does not matter
    if (in_.peek() == '+') return unsupported("a possessive quantifier");
    const char after = in_.peek();
    if (after == '*' || after == '?' || after == '{') {
      return error("a quantifier after a quantifier");
    }
    return to_.add({.kind = Expr::kRepeat, .first = *item, .min = min, .max = max}, item);
  }

  Status atom(uint32_t depth, uint32_t* out) {
    const char c = in_.peek();
    switch (c) {
      case '(':
        return group(depth, out);
      case '[':
        return set(out);
      case '\\':
        return escape(out);
      case '^':
        in_.skip();
        return to_.add({.kind = Expr::kBegin}, out);
      case '$':
        in_.skip();
        return to_.add({.kind = Expr::kFinish}, out);
      case '.': {
        in_.skip();
        CharSet line_ends(to_.allocator());
        MOE_TRY(line_ends.add('\n', '\n'));
        MOE_TRY(line_ends.add('\r', '\r'));
        MOE_TRY(line_ends.add(0x2028, 0x2029));
        MOE_TRY(line_ends.close());
        MOE_TRY(line_ends.invert());
        return to_.add_set(line_ends, out);
      }
      case '*':
      case '+':
      case '?':
        return error("a quantifier with nothing before it");
      default:
        return to_.add_char(in_.take_char(), out);
    }
  }

  Status group(uint32_t depth, uint32_t* out) {
    const size_t begin = in_.at();
    in_.skip();
    if (in_.take('?')) {
      if (in_.take("<=") || in_.take("<!") || in_.peek() == '=' || in_.peek() == '!') {
        in_.go_to(begin);
        return unsupported("an assertion that looks ahead or behind");
      }
      if (in_.take("P<") || in_.take('<')) {
        while (!in_.at_end() && !in_.take('>')) (void)in_.take_char();
      } else if (!in_.take(':')) {
        in_.go_to(begin);
        return unsupported("expected (?:...) or (?<name>...)");
      }
    }
    MOE_TRY(choice(depth + 1, out));
    if (in_.take(')')) return {};
    in_.go_to(begin);
    return error("a \"(\" without \")\"");
  }

  // The character of an escape, or a class of them (*is_set).
  Status escaped(CharSet& to, uint32_t* code, bool* is_set) {
    const size_t begin = in_.at();
    in_.skip();
    if (in_.at_end()) return error("a backslash at the end");
    *is_set = false;
    const uint32_t c = in_.take_char();
    switch (c) {
      case 'd':
      case 'w':
      case 's':
        *is_set = true;
        return add_class(static_cast<char>(c), to);
      case 'D':
      case 'W':
      case 'S': {
        *is_set = true;
        CharSet others(to_.allocator());
        MOE_TRY(add_class(static_cast<char>(c - 'A' + 'a'), others));
        MOE_TRY(others.close());
        MOE_TRY(others.invert());
        return to.add(others);
      }
      case 't':
        *code = '\t';
        return {};
      case 'n':
        *code = '\n';
        return {};
      case 'r':
        *code = '\r';
        return {};
      case 'f':
        *code = '\f';
        return {};
      case 'v':
        *code = '\v';
        return {};
      case '0':
        *code = 0;
        if (!is_digit(in_.peek())) return {};
        break;
      case 'x':
        if (in_.take_hex(2, code)) return {};
        break;
      case 'c':
        if (is_letter(in_.peek())) {
          *code = static_cast<uint32_t>(in_.peek() & 31);
          in_.skip();
          return {};
        }
        break;
      case 'u':
        if (unicode(code)) return {};
        break;
      default:
        *code = c;
        if (c >= 0x80 || (!is_digit(static_cast<char>(c)) && (c | 32) - 'a' >= 26)) return {};
    }
    in_.go_to(begin);
    if (c == 'b' || c == 'B') return unsupported("a word boundary");
    if (c == 'p' || c == 'P') return unsupported("a property of Unicode (\\p)");
    if (c == 'k' || (c >= '1' && c <= '9')) return unsupported("a reference to a group");
    return error("an unknown escape");
  }

  // After \u: four digits, two such codes of a pair, or {...}.
  bool unicode(uint32_t* code) {
    if (in_.take('{')) {
      uint32_t value = 0;
      uint32_t digit = 0;
      while (in_.take_hex(1, &digit)) {
        value = value * 16 + digit;
        if (value > kMaxChar) return false;
      }
      *code = value;
      return in_.take('}');
    }
    if (!in_.take_hex(4, code)) return false;
    uint32_t low = 0;
    if (*code < 0xD800 || *code > 0xDBFF) return *code < 0xDC00 || *code > 0xDFFF;
    if (!in_.take("\\u") || !in_.take_hex(4, &low) || low < 0xDC00 || low > 0xDFFF) return false;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return true;
  }

  Status escape(uint32_t* out) {
    CharSet set(to_.allocator());
    uint32_t code = 0;
    bool is_set = false;
    MOE_TRY(escaped(set, &code, &is_set));
    if (!is_set) return to_.add_char(code, out);
    MOE_TRY(set.close());
    return to_.add_set(set, out);
  }

  // One member of a [...]: *is_set if it is a class, already added to `to`.
  Status member(CharSet& to, uint32_t* code, bool* is_set) {
    *is_set = false;
    if (in_.peek() == '\\' && in_.peek(1) == 'b') {
      in_.skip(2);
      *code = '\b';
      return {};
    }
    if (in_.peek() == '\\' && in_.peek(1) == '-') {
      in_.skip(2);
      *code = '-';
      return {};
    }
    if (in_.peek() == '\\') return escaped(to, code, is_set);
    *code = in_.take_char();
    return {};
  }

  Status set(uint32_t* out) {
    const size_t begin = in_.at();
    in_.skip();
    const bool inverted = in_.take('^');
    CharSet chars(to_.allocator());
    while (!in_.take(']')) {
      if (in_.at_end()) {
        in_.go_to(begin);
        return error("a \"[\" without \"]\"");
      }
      uint32_t low = 0;
      bool is_set = false;
      MOE_TRY(member(chars, &low, &is_set));
      uint32_t high = low;
      if (in_.peek() == '-' && in_.peek(1) != ']' && in_.peek(1) != '\0') {
        if (is_set) {  // a "-" behind a class is itself
          continue;
        }
        in_.skip();
        bool high_is_set = false;
        MOE_TRY(member(chars, &high, &high_is_set));
        if (high_is_set) {  // and so is one before a class
          MOE_TRY(chars.add('-', '-'));
          high = low;
        }
        if (high < low) return error("a range from a larger to a smaller character");
      }
      if (!is_set) MOE_TRY(chars.add(low, high));
    }
    MOE_TRY(chars.close());
    if (inverted) MOE_TRY(chars.invert());
    return to_.add_set(chars, out);
  }

  Cursor in_;
  Expressions& to_;
};

}  // namespace

Status parse_regex(std::string_view text, Expressions& to, uint32_t* expr) {
  if (!utf8_is_valid(text)) {
    return Status::error(MOE_ERR_FORMAT, "regular expression: not UTF-8 at byte %zu",
                         utf8_valid_prefix(text));
  }
  return Parser(text, to).parse(expr);
}

}  // namespace moe::grammar
