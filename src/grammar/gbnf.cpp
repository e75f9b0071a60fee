// SPDX-License-Identifier: MIT
// Parses GBNF, the grammars of llama.cpp.
#include "src/base/number.h"
#include "src/grammar/cursor.h"
#include "src/grammar/keys.h"

namespace moe::grammar {
namespace {

bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '_'; }

class GbnfParser {
 public:
  GbnfParser(std::string_view text, Network& network)
      : in_(text),
        network_(network),
        to_(network.allocator()),
        names_(network.allocator()),
        numbers_(network.allocator()) {}

  Status parse(uint32_t* root) {
    for (skip_space(true); !in_.at_end(); skip_space(true)) MOE_TRY(rule());
    const Name* found = nullptr;
    for (const Name& n : names_) {
      if (n.name == "root" && n.defined) found = &n;
      if (n.defined) continue;
      return Status::error(MOE_ERR_FORMAT, "grammar, byte %zu: there is no rule named \"%.*s\"",
                           n.first_use, static_cast<int>(std::min<size_t>(n.name.size(), 60)),
                           n.name.data());
    }
    if (found == nullptr) {
      return Status::error(MOE_ERR_FORMAT, "grammar: expected a rule named \"root\", found none");
    }
    *root = found->rule;
    return network_.status();
  }

 private:
  struct Name {
    std::string_view name;
    uint32_t rule;
    size_t first_use;
    bool defined;
  };

  Status error(const char* what) const {
    return Status::error(MOE_ERR_FORMAT, "grammar, byte %zu: %s", in_.at(), what);
  }

  void skip_space(bool lines) {
    for (;;) {
      const char c = in_.peek();
      if (in_.at_end()) return;
      if (c == '#') {
        while (!in_.at_end() && in_.peek() != '\n') in_.skip();
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        in_.skip();
      } else {
        return;
      }
    }
  }

  Status name(Name** out) {
    const size_t begin = in_.at();
    while (is_name(in_.peek())) in_.skip();
    const std::string_view text = in_.from(begin);
    if (text.empty()) return error("expected a name");
    uint32_t id = 0;
    bool fresh = false;
    MOE_TRY(numbers_.add(text, &id, &fresh));
    if (fresh) MOE_TRY(names_.push({text, network_.add_rule(), begin, false}));
    *out = &names_[id];
    return network_.status();
  }

  Status rule() {
    const size_t begin = in_.at();
    Name* n = nullptr;
    MOE_TRY(name(&n));
    const uint32_t number = n->rule;
    if (n->defined) {
      in_.go_to(begin);
      return error("a second rule with this name");
    }
    n->defined = true;
    skip_space(false);
    if (!in_.take("::=")) return error("expected ::=");
    uint32_t expr = 0;
    MOE_TRY(choice(0, &expr));
    if (!in_.at_end() && in_.peek() != '\n' && in_.peek() != '\r') {
      return error("expected the end of the rule");
    }
    network_.define(number, to_.build(network_, expr, Spelling::kPlain, kEnd));
    return network_.status();
  }

  // A line's end ends a rule unless it is in parentheses or beside "|".
  Status choice(uint32_t depth, uint32_t* out) {
    if (depth > kMaxDepth) {
      return Status::error(MOE_ERR_UNSUPPORTED,
                           "grammar, byte %zu: more than %u groups inside each other", in_.at(),
                           kMaxDepth);
    }
    Array<uint32_t> branches(to_.allocator());
    for (;;) {
      skip_space(true);
      uint32_t branch = 0;
      MOE_TRY(sequence(depth, &branch));
      MOE_TRY(branches.push(branch));
      const size_t at = in_.at();
      skip_space(true);
      if (in_.take('|')) continue;
      in_.go_to(at);
      return to_.add_list(Expr::kChoice, branches.span(), out);
    }
  }

  Status sequence(uint32_t depth, uint32_t* out) {
    Array<uint32_t> items(to_.allocator());
    for (;;) {
      uint32_t item = 0;
      bool found = false;
      MOE_TRY(atom(depth, &item, &found));
      if (!found) return to_.add_list(Expr::kSequence, items.span(), out);
      MOE_TRY(quantified(&item));
      MOE_TRY(items.push(item));
      skip_space(depth > 0);
    }
  }

  Status quantified(uint32_t* item) {
    for (;;) {
      const size_t at = in_.at();
      skip_space(false);
      uint32_t min = 0;
      uint32_t max = kNoLimit;
      if (in_.take('*')) {
      } else if (in_.take('+')) {
        min = 1;
      } else if (in_.take('?')) {
        max = 1;
      } else if (in_.take('{')) {
        if (!in_.take_counts(&min, &max)) return error("expected {m}, {m,} or {m,n}");
        MOE_TRY(check_counts(min, max, at).with_context("grammar"));
      } else {
        in_.go_to(at);
        return {};
      }
      if (++n_quantifiers_ > kMaxCount) return error("too many quantifiers");
      MOE_TRY(to_.add({.kind = Expr::kRepeat, .first = *item, .min = min, .max = max}, item));
      const size_t next = in_.at();
      skip_space(false);
      const char c = in_.peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') return error("a second quantifier");
      in_.go_to(next);
    }
  }

  Status atom(uint32_t depth, uint32_t* out, bool* found) {
    *found = true;
    const char c = in_.peek();
    if (c == '"') return literal(out);
    if (c == '[') return set(out);
    if (in_.take('.')) {
      CharSet any(to_.allocator());
      MOE_TRY(any.invert());
      return to_.add_set(any, out);
    }
    if (in_.take('(')) {
      MOE_TRY(choice(depth + 1, out));
      skip_space(true);
      return in_.take(')') ? Status() : error("expected \")\"");
    }
    if (c == '<' || c == '!') {
      return Status::error(MOE_ERR_UNSUPPORTED,
                           "grammar, byte %zu: a token by its name; write its text in quotes",
                           in_.at());
    }
    *found = is_name(c);
    if (!*found) return {};
    // In a group, a name with "::=" behind it is the next rule: a ")" is missing.
    Name* n = nullptr;
    MOE_TRY(name(&n));
    return to_.add({.kind = Expr::kRule, .first = n->rule}, out);
  }

  Status character(uint32_t* code) {
    if (!in_.take('\\')) {
      *code = in_.take_char();
      return {};
    }
    const char c = in_.peek();
    if (in_.at_end()) return error("a backslash at the end");
    in_.skip();
    uint32_t digits = 0;
    switch (c) {
      case 'n':
        *code = '\n';
        return {};
      case 't':
        *code = '\t';
        return {};
      case 'r':
        *code = '\r';
        return {};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        *code = static_cast<uint32_t>(c);
        return {};
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        break;
      case 'U':
        digits = 8;
        break;
      default:
        return error("an unknown escape");
    }
    if (in_.take_hex(digits, code) && *code <= kMaxChar && (*code < 0xD800 || *code > 0xDFFF)) {
      return {};
    }
    return error("expected the digits of a character");
  }

  Status literal(uint32_t* out) {
    const size_t begin = in_.at();
    in_.skip();
    Array<uint32_t> items(to_.allocator());
    while (!in_.take('"')) {
      if (in_.at_end() || in_.peek() == '\n') {
        in_.go_to(begin);
        return error("a quote that is not closed");
      }
      uint32_t code = 0;
      uint32_t item = 0;
      MOE_TRY(character(&code));
      MOE_TRY(to_.add_char(code, &item));
      MOE_TRY(items.push(item));
    }
    return to_.add_list(Expr::kSequence, items.span(), out);
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
      MOE_TRY(character(&low));
      uint32_t high = low;
      if (in_.peek() == '-' && in_.peek(1) != ']' && in_.peek(1) != '\0') {
        in_.skip();
        MOE_TRY(character(&high));
        if (high < low) return error("a range from a larger to a smaller character");
      }
      MOE_TRY(chars.add(low, high));
    }
    MOE_TRY(chars.close());
    if (inverted) MOE_TRY(chars.invert());
    return to_.add_set(chars, out);
  }

  Cursor in_;
  Network& network_;
  Expressions to_;
  Array<Name> names_;
  Names numbers_;
  uint32_t n_quantifiers_ = 0;
};

}  // namespace

Status parse_gbnf(std::string_view text, Network& network, uint32_t* root) {
  if (!utf8_is_valid(text)) {
    return Status::error(MOE_ERR_FORMAT, "grammar: not UTF-8 at byte %zu", utf8_valid_prefix(text));
  }
  return GbnfParser(text, network).parse(root);
}

}  // namespace moe::grammar
