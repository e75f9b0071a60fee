// SPDX-License-Identifier: MIT
// Reads Oniguruma's brackets, with nested sets and &&, and writes the PCRE2 that matches the same
// characters.
#include "src/text/characters/regex_class.h"

#include <utility>

#include "src/base/number.h"
#include "src/base/string.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr int kMaxNested = 16;

struct Named {
  std::string_view name;  // lower case, without separators
  std::string_view items;
};

// The names that PCRE2 lacks or reads differently. In a bracket, [:punct:] and [:word:] are others
// than the properties of that name.
constexpr Named kProperties[] = {{"alnum", "\\p{Alphabetic}\\p{Nd}"},
                                 {"alpha", "\\p{Alphabetic}"},
                                 {"any", "\\x{0}-\\x{10ffff}"},
                                 {"ascii", "\\x00-\\x7f"},
                                 {"blank", "\\p{Zs}\\t"},
                                 {"casedletter", "\\p{Lu}\\p{Ll}\\p{Lt}"},
                                 {"closepunctuation", "\\p{Pe}"},
                                 {"cntrl", "\\p{Cc}"},
                                 {"connectorpunctuation", "\\p{Pc}"},
                                 {"control", "\\p{Cc}"},
                                 {"currencysymbol", "\\p{Sc}"},
                                 {"dashpunctuation", "\\p{Pd}"},
                                 {"decimalnumber", "\\p{Nd}"},
                                 {"digit", "\\p{Nd}"},
                                 {"enclosingmark", "\\p{Me}"},
                                 {"finalpunctuation", "\\p{Pf}"},
                                 {"format", "\\p{Cf}"},
                                 {"initialpunctuation", "\\p{Pi}"},
                                 {"lc", "\\p{Lu}\\p{Ll}\\p{Lt}"},
                                 {"letter", "\\p{L}"},
                                 {"letternumber", "\\p{Nl}"},
                                 {"lineseparator", "\\p{Zl}"},
                                 {"lower", "\\p{Lowercase}"},
                                 {"lowercaseletter", "\\p{Ll}"},
                                 {"mark", "\\p{M}"},
                                 {"combiningmark", "\\p{M}"},
                                 {"mathsymbol", "\\p{Sm}"},
                                 {"modifierletter", "\\p{Lm}"},
                                 {"modifiersymbol", "\\p{Sk}"},
                                 {"nonspacingmark", "\\p{Mn}"},
                                 {"number", "\\p{N}"},
                                 {"openpunctuation", "\\p{Ps}"},
                                 {"other", "\\p{C}"},
                                 {"otherletter", "\\p{Lo}"},
                                 {"othernumber", "\\p{No}"},
                                 {"otherpunctuation", "\\p{Po}"},
                                 {"othersymbol", "\\p{So}"},
                                 {"paragraphseparator", "\\p{Zp}"},
                                 {"privateuse", "\\p{Co}"},
                                 {"punct", "\\p{P}"},
                                 {"punctuation", "\\p{P}"},
                                 {"separator", "\\p{Z}"},
                                 {"space", "\\p{White_Space}"},
                                 {"spaceseparator", "\\p{Zs}"},
                                 {"spacingmark", "\\p{Mc}"},
                                 {"symbol", "\\p{S}"},
                                 {"titlecaseletter", "\\p{Lt}"},
                                 {"unassigned", "\\p{Cn}"},
                                 {"upper", "\\p{Uppercase}"},
                                 {"uppercaseletter", "\\p{Lu}"},
                                 {"whitespace", "\\p{White_Space}"},
                                 {"xdigit", "0-9A-Fa-f"}};
constexpr Named kBrackets[] = {{"punct", "\\p{P}\\p{S}"}, {"word", kWordItems}};

std::string_view find_named(std::span<const Named> list, std::string_view name) {
  for (const Named& n : list) {
    if (n.name == name) return n.items;
  }
  return {};
}

bool is_hex(char c) { return hex_value(c) >= 0; }
uint32_t hex_code(char c) { return static_cast<uint32_t>(hex_value(c)); }

Status put(std::string_view text, Array<char>& out) { return out.append(text.data(), text.size()); }

// One operand of &&: what stands between brackets, and matchers of a character beside it.
struct Operand {
  explicit Operand(const Allocator& a) : items(a), others(a) {}
  Array<char> items;
  Array<char> others;  // "X|Y"
  size_t n_others = 0;

  Status add_other(const Array<char>& matcher) {
    if (n_others++ > 0) MOE_TRY(others.push('|'));
    return others.append(matcher.data(), matcher.size());
  }
  bool simple() const { return n_others == 0 && !items.empty(); }
  Status write(bool negated, Array<char>& out) const {
    if (items.empty() && n_others == 0) return put(negated ? "(?s:.)" : "(?!)", out);
    if (n_others == 0) {
      MOE_TRY(put(negated ? "[^" : "[", out));
      MOE_TRY(out.append(items.data(), items.size()));
      return out.push(']');
    }
    if (negated) MOE_TRY(put("(?>(?!", out));
    const bool group = !items.empty() || n_others > 1;
    if (group) MOE_TRY(put("(?>", out));
    if (!items.empty()) {
      MOE_TRY(out.push('['));
      MOE_TRY(out.append(items.data(), items.size()));
      MOE_TRY(put("]|", out));
    }
    MOE_TRY(out.append(others.data(), others.size()));
    if (group) MOE_TRY(out.push(')'));
    return negated ? put(")(?s:.))", out) : Status();
  }
};

class ClassReader {
 public:
  ClassReader(std::string_view in, size_t at, bool ignore_case, const ScriptNames& scripts,
              const Allocator& allocator)
      : in_(in), i_(at), ignore_case_(ignore_case), scripts_(scripts), allocator_(allocator) {}

  size_t end() const { return i_; }

  // The class at '['. `simple`: if not null, set to whether out is only "[items]".
  Status read(int depth, Array<char>& out, bool* simple, bool* negated_out) {
    if (depth == kMaxNested) return unsupported("classes nested this deep");
    ++i_;
    const bool negated = peek(0) == '^';
    if (negated) ++i_;
    Array<char> before(allocator_);  // "(?=X)" of each operand but the last
    Operand operand(allocator_);
    size_t n_operands = 1;
    bool first = true;  // a ']' is literal
    while (true) {
      if (i_ >= in_.size()) {
        return Status::error(MOE_ERR_FORMAT, "pattern: a class without its ]");
      }
      if (peek(0) == ']' && !first) break;
      if (peek(0) == '&' && peek(1) == '&') {
        i_ += 2;
        MOE_TRY(put("(?=", before));
        MOE_TRY(operand.write(false, before));
        MOE_TRY(before.push(')'));
        operand = Operand(allocator_);
        ++n_operands;
      } else {
        MOE_TRY(item(depth, operand));
      }
      first = false;
    }
    ++i_;
    if (n_operands > 1 && ignore_case_) return unsupported("&& in a class without regard to case");
    *simple = n_operands == 1 && operand.simple();
    *negated_out = negated;
    if (n_operands == 1) return operand.write(negated, out);
    MOE_TRY(put(negated ? "(?>(?!" : "(?>", out));
    MOE_TRY(out.append(before.data(), before.size()));
    MOE_TRY(operand.write(false, out));
    return put(negated ? ")(?s:.))" : ")", out);
  }

 private:
  char peek(size_t ahead) const { return i_ + ahead < in_.size() ? in_[i_ + ahead] : '\0'; }
  bool at_end() const {
    return peek(0) == ']' || (peek(0) == '&' && peek(1) == '&') || i_ >= in_.size();
  }
  Status unsupported(const char* what) const {
    return Status::error(MOE_ERR_UNSUPPORTED, "pattern: %s at byte %zu is not supported", what, i_);
  }

  Status item(int depth, Operand& operand) {
    if ((peek(0) == '-' && peek(1) == '-') || (peek(0) == '~' && peek(1) == '~')) {
      return unsupported(
          "-- or ~~ in a class (Oniguruma reads characters, fancy-regex a set operation: escape "
          "them, or write [A&&[^B]])");
    }
    if (peek(0) == '[') return peek(1) == ':' ? bracket(operand) : nested(depth, operand);
    bool is_set = false;
    if (peek(0) == '\\') MOE_TRY(set_escape(operand, &is_set));
    if (is_set) return {};
    const bool bare_hyphen = peek(0) == '-';
    uint32_t low = 0;
    MOE_TRY(character(&low));
    if (peek(0) != '-' || bare_hyphen) return put_item(low, operand);
    const size_t hyphen = i_++;
    const bool set_follows = peek(0) == '\\' && is_set_letter(peek(1));
    if (at_end() || set_follows || peek(0) == '[' || peek(0) == '-') {
      if (peek(0) == '[') return unsupported("a range that ends with a class");
      i_ = hyphen;  // the hyphen is a character of its own
      return put_item(low, operand);
    }
    uint32_t high = 0;
    MOE_TRY(character(&high));
    if (high < low) {
      return Status::error(MOE_ERR_FORMAT, "pattern: an empty range in a class at byte %zu",
                           hyphen);
    }
    MOE_TRY(put_item(low, operand));
    MOE_TRY(operand.items.push('-'));
    MOE_TRY(put_character(high, operand.items));
    if (peek(0) != '-' || peek(1) == '-' || peek(1) == ']') return {};
    ++i_;  // behind a range it begins none
    return put_item('-', operand);
  }

  Status put_item(uint32_t code, Operand& operand) { return put_character(code, operand.items); }

  Status character(uint32_t* code) {
    if (peek(0) == '\\') {
      if (read_escaped(in_, &i_, code)) return {};
      return unsupported("this escape in a class");
    }
    const Utf8Char c = utf8_next(in_.data() + i_);
    i_ += c.length;
    *code = c.code;
    return {};
  }

  static bool is_set_letter(char c) {
    return c != '\0' && std::string_view("sSwWdDhHpP").find(c) != std::string_view::npos;
  }

  // Items, or with `negated` all characters but them.
  Status add_set(std::string_view items, bool negated, Operand& operand) {
    if (!negated) return put(items, operand.items);
    Array<char> matcher(allocator_);
    MOE_TRY(put("[^", matcher));
    MOE_TRY(put(items, matcher));
    MOE_TRY(matcher.push(']'));
    return operand.add_other(matcher);
  }

  Status set_escape(Operand& operand, bool* is_set) {
    const char c = peek(1);
    *is_set = is_set_letter(c);
    if (!*is_set) return {};
    if (c == 'p' || c == 'P') return property(operand);
    i_ += 2;
    switch (c) {
      case 's':
        return put("\\p{White_Space}", operand.items);
      case 'S':
        return put("\\P{White_Space}", operand.items);
      case 'd':
        return put("\\d", operand.items);
      case 'D':
        return put("\\D", operand.items);
      case 'w':
      case 'W':
        return add_set(kWordItems, c == 'W', operand);
      default:
        return add_set(kHexItems, c == 'H', operand);
    }
  }

  Status property(Operand& operand) {
    Array<char> items(allocator_);
    bool negated = false;
    MOE_TRY(property_items(in_, &i_, scripts_, &negated, items));
    const std::string_view text(items.data(), items.size());
    if (ignore_case_) {  // others gain or lose letters that differ in case
      static constexpr std::string_view kSame[] = {
          "\\p{N}", "\\p{P}", "\\p{S}", "\\p{Z}", "\\p{Nd}", "\\p{Zs}", "\\p{White_Space}"};
      if (text == "\\p{L}") return add_set("\\p{L}\\x{345}", negated, operand);
      for (const std::string_view same : kSame) {
        if (text == same) return add_property(text, negated, operand);
      }
      return unsupported("this property in a class without regard to case");
    }
    return add_property(text, negated, operand);
  }

  // \P{X} may stand between brackets; several properties that are left out may not.
  Status add_property(std::string_view items, bool negated, Operand& operand) {
    const bool one = items.starts_with("\\p{") && items.find('}') + 1 == items.size();
    if (!one || !negated) return add_set(items, negated, operand);
    MOE_TRY(put("\\P", operand.items));
    return put(slice(items, 2), operand.items);
  }

  // [:alpha:]
  Status bracket(Operand& operand) {
    const size_t close = in_.find(":]", i_ + 2);
    if (close == std::string_view::npos) return unsupported("a bracket without its :]");
    std::string_view name = slice(in_, i_ + 2, close - i_ - 2);
    const bool negated = name.starts_with("^");
    if (negated) name.remove_prefix(1);
    static constexpr std::string_view kNames[] = {"alnum", "alpha",  "blank", "cntrl",
                                                  "digit", "lower",  "punct", "space",
                                                  "upper", "xdigit", "word",  "ascii"};
    std::string_view items;
    for (const std::string_view known : kNames) {
      if (name != known) continue;
      items = find_named(kBrackets, name);
      if (items.empty()) items = find_named(kProperties, name);
    }
    if (name == "graph" || name == "print") {  // what is no space, control or unassigned character
      i_ = close + 2;
      return add_set(name == "graph" ? "\\p{White_Space}\\p{Cc}\\p{Cn}\\p{Cs}"
                                     : "\\p{Zl}\\p{Zp}\\p{Cc}\\p{Cn}\\p{Cs}",
                     !negated, operand);
    }
    const bool cased = name == "lower" || name == "upper";
    if (items.empty() || (ignore_case_ && cased)) return unsupported("this bracket");
    i_ = close + 2;
    return add_property(items, negated, operand);
  }

  Status nested(int depth, Operand& operand) {
    Array<char> matcher(allocator_);
    bool simple = false;
    bool negated = false;
    MOE_TRY(read(depth + 1, matcher, &simple, &negated));
    if (negated && ignore_case_) return unsupported("[^ in a class without regard to case");
    if (!simple || negated) return operand.add_other(matcher);
    return operand.items.append(matcher.data() + 1, matcher.size() - 2);
  }

  const std::string_view in_;
  size_t i_;
  const bool ignore_case_;
  const ScriptNames& scripts_;
  const Allocator& allocator_;
};

}  // namespace

Status class_to_pcre2(std::string_view in, size_t* at, bool ignore_case, const ScriptNames& scripts,
                      Array<char>& out) {
  ClassReader reader(in, *at, ignore_case, scripts, out.allocator());
  bool simple = false;
  bool negated = false;
  MOE_TRY(reader.read(0, out, &simple, &negated));
  *at = reader.end();
  return {};
}

Status property_items(std::string_view in, size_t* at, const ScriptNames& scripts, bool* negated,
                      Array<char>& out) {
  const size_t close = in.find('}', *at);
  if (slice(in, *at + 2, 1) != "{") {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "pattern: \\%c without braces at byte %zu is not supported (Oniguruma "
                         "reads letters: write \\%c{...})",
                         in[*at + 1], *at, in[*at + 1]);
  }
  if (close == std::string_view::npos) {
    return Status::error(MOE_ERR_FORMAT, "pattern: a property without }");
  }
  std::string_view text = slice(in, *at + 3, close - *at - 3);
  *negated = in[*at + 1] == 'P';
  if (text.starts_with("^")) {
    *negated = !*negated;
    text.remove_prefix(1);
  }
  char name[48];
  size_t n = 0;
  for (const char c : text) {
    if (c == ' ' || c == '_' || c == '-') continue;
    if (n == sizeof name) break;
    name[n++] = ascii_lower(c);
  }
  const std::string_view plain(name, n);
  const std::string_view items = find_named(kProperties, plain);
  const bool script = items.empty() && text.size() > 2 && scripts.has(text);
  const bool block = items.empty() && !script && plain.starts_with("in");  // In_Basic_Latin
  if (plain == "word" || plain == "graph" || plain == "print" || plain == "assigned" || block ||
      text.find_first_of(":=&") != std::string_view::npos) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "pattern: the property %.*s at byte %zu is not supported",
                         static_cast<int>(std::min<size_t>(text.size(), 40)), text.data(), *at);
  }
  *at = close + 1;
  if (!items.empty()) return put(items, out);
  MOE_TRY(put(script ? "\\p{sc:" : "\\p{", out));
  MOE_TRY(put(text, out));
  return out.push('}');
}

bool read_escaped(std::string_view in, size_t* at, uint32_t* code) {
  const auto peek = [&](size_t i) { return i < in.size() ? in[i] : '\0'; };
  const size_t i = *at;
  const char c = peek(i + 1);
  const auto byte = [&](size_t k) {  // "\xHH"
    const bool whole =
        peek(k) == '\\' && peek(k + 1) == 'x' && is_hex(peek(k + 2)) && is_hex(peek(k + 3));
    return whole ? hex_code(peek(k + 2)) * 16 + hex_code(peek(k + 3)) : 256;
  };
  if (c == 'x' && peek(i + 2) == '{') {
    uint32_t value = 0;
    size_t k = i + 3;
    for (; is_hex(peek(k)) && value <= 0x10FFFF; ++k) value = value * 16 + hex_code(peek(k));
    if (k == i + 3 || peek(k) != '}' || value > 0x10FFFF) return false;
    *code = value;
    *at = k + 1;
    return true;
  }
  if (c == 'x') {
    char bytes[4] = {};
    size_t n = 0;
    for (; n < 4 && byte(i + 4 * n) < 256; ++n) bytes[n] = static_cast<char>(byte(i + 4 * n));
    for (size_t length = 1; length <= n; ++length) {
      if (!utf8_is_valid({bytes, length})) continue;
      *code = utf8_next(bytes).code;
      *at = i + 4 * length;
      return true;
    }
    return false;
  }
  if (c == 'u') {
    uint32_t value = 0;
    for (size_t k = i + 2; k < i + 6; ++k) {
      if (!is_hex(peek(k))) return false;
      value = value * 16 + hex_code(peek(k));
    }
    *code = value;
    *at = i + 6;
    return true;
  }
  if (c >= '0' && c <= '7') {
    uint32_t value = 0;
    size_t k = i + 1;
    for (; k < i + 4 && peek(k) >= '0' && peek(k) <= '7'; ++k) {
      value = value * 8 + static_cast<uint32_t>(peek(k) - '0');
    }
    *code = value;
    *at = k;
    return value < 0x80;
  }
  static constexpr char kFrom[] = "tnrfvaeb";
  static constexpr char kTo[] = "\t\n\r\f\v\a\x1b\b";
  for (size_t k = 0; k + 1 < sizeof kFrom; ++k) {
    if (c != kFrom[k]) continue;
    *code = static_cast<uint8_t>(kTo[k]);
    *at = i + 2;
    return true;
  }
  const bool plain = c == 'B' || c == 'Q' || c == 'E' || c == 'A' || c == 'Z' || c == 'z';
  if (c == '\0' || (is_letter(c) && !plain) || (c >= '8' && c <= '9')) return false;
  const Utf8Char next = utf8_next(in.data() + i + 1);
  *code = next.code;
  *at = i + 1 + next.length;
  return true;
}

Status put_character(uint32_t code, Array<char>& out) {
  char bytes[4];
  const bool plain = code == '_' || code == ' ' || (code >= '0' && code <= '9') ||
                     (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') || code >= 0xA1;
  if (!plain && code > ' ' && code < 0x7F) MOE_TRY(out.push('\\'));
  if (plain || (code > ' ' && code < 0x7F)) return out.append(bytes, utf8_write(code, bytes));
  static constexpr char kHex[] = "0123456789abcdef";
  MOE_TRY(put("\\x", out));
  MOE_TRY(out.push(kHex[code >> 4 & 15]));
  return out.push(kHex[code & 15]);
}

}  // namespace moe
