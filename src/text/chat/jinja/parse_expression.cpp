// SPDX-License-Identifier: MIT
// Parses expressions by recursive descent, with Jinja's order of operators.
#include <cstdarg>

#include "src/base/string.h"
#include "src/text/chat/jinja/number.h"
#include "src/text/chat/jinja/parser.h"

namespace moe::jinja {

uint32_t Parser::fail(moe_status code, const char* format, ...) {
  if (!ok()) return kNoNode;
  va_list args;
  va_start(args, format);
  status_ = Status::verror(code, format, args).with_context("line %u", token().line);
  va_end(args);
  return kNoNode;
}

uint32_t Parser::unexpected(const char* expected) {
  if (token().kind == TokenKind::kEnd) {
    return fail(MOE_ERR_FORMAT, "expected %s, found the end of the template", expected);
  }
  const std::string_view found =
      token().kind == TokenKind::kOutputEnd || token().kind == TokenKind::kBlockEnd
          ? std::string_view("the end of the tag")
          : slice(view(), 0, 40);
  return fail(MOE_ERR_FORMAT, "expected %s, found '%.*s'", expected, static_cast<int>(found.size()),
              found.data());
}

Text Parser::new_text(std::string_view text) {
  const auto begin = static_cast<uint32_t>(program_.text.size());
  keep(program_.text.append(text.data(), text.size()));
  return {begin, static_cast<uint32_t>(text.size())};
}

uint32_t Parser::unsupported(uint32_t line, std::string_view what) {
  return add({.op = Op::kUnsupported, .line = line, .text = new_text(what)});
}

uint32_t Parser::add(Node node) {
  if (!ok()) return kNoNode;
  const auto index = static_cast<uint32_t>(program_.nodes.size());
  keep(program_.nodes.push(node));
  return ok() ? index : kNoNode;
}

uint32_t Parser::add(Node node, const Array<uint32_t>& children) {
  node.first = static_cast<uint32_t>(program_.children.size());
  node.count = static_cast<uint32_t>(children.size());
  keep(program_.children.append(children.data(), children.size()));
  return add(node);
}

bool Parser::take(std::string_view op) {
  if (!is(op)) return false;
  advance();
  return true;
}

bool Parser::take_word(std::string_view word) {
  if (!is_word(word)) return false;
  advance();
  return true;
}

void Parser::expect(std::string_view op) {
  if (take(op)) return;
  char text[8] = "' '";
  text[1] = op[0];
  unexpected(text);
}

Text Parser::name(const char* what) {
  if (token().kind != TokenKind::kName) {
    unexpected(what);
    return {};
  }
  const Text text = token().text;
  advance();
  return text;
}

// a.b.c, as one name.
Text Parser::dotted_name(const char* what) {
  Text all = name(what);
  while (ok() && take(".")) {
    const Text last = name(what);
    all.size = last.begin + last.size - all.begin;
  }
  return all;
}

uint32_t Parser::expression() {
  if (++nesting_ > kMaxNesting) {
    fail(MOE_ERR_UNSUPPORTED, "more than %d levels in each other", kMaxNesting);
  }
  uint32_t value = ok() ? choice_free() : kNoNode;
  while (ok() && is_word("if")) {
    const uint32_t line = token().line;
    advance();
    Array<uint32_t> parts(allocator());
    keep(parts.push(choice_free()));
    keep(parts.push(value));
    keep(parts.push(take_word("else") ? expression() : kNoNode));
    value = add({.op = Op::kChoice, .line = line}, parts);
  }
  --nesting_;
  return value;
}

// x, or the list of "x, y".
uint32_t Parser::tuple(bool with_choice) {
  const uint32_t line = token().line;
  const uint32_t first = with_choice ? expression() : choice_free();
  if (!is(",")) return first;
  Array<uint32_t> elements(allocator());
  keep(elements.push(first));
  while (ok() && take(",")) {
    const bool ended = token().kind == TokenKind::kBlockEnd ||
                       token().kind == TokenKind::kOutputEnd || is_word("recursive");
    if (ended) break;
    keep(elements.push(with_choice ? expression() : choice_free()));
  }
  return add({.op = Op::kList, .line = line}, elements);
}

uint32_t Parser::choice_free() {
  uint32_t left = kNoNode;
  for (bool first_or = true; ok() && (first_or || is_word("or")); first_or = false) {
    const uint32_t line = token().line;
    if (!first_or) advance();
    uint32_t all = negation();
    while (ok() && is_word("and")) {
      const uint32_t and_line = token().line;
      advance();
      const uint32_t right = negation();
      all = add({.op = Op::kAnd, .line = and_line, .a = all, .b = right});
    }
    left = first_or ? all : add({.op = Op::kOr, .line = line, .a = left, .b = all});
  }
  return left;
}

uint32_t Parser::negation() {
  const uint32_t line = token().line;
  uint32_t n = 0;
  while (take_word("not")) ++n;
  uint32_t value = comparison();
  for (; ok() && n > 0; --n) value = add({.op = Op::kNot, .line = line, .a = value});
  return value;
}

// The operator in front of another value of a comparison.
bool Parser::take_comparison(Node* operand) {
  const bool negated = is_word("not") && next_is_word("in");
  const bool symbol = is("==") || is("!=") || is("<") || is("<=") || is(">") || is(">=");
  if (!symbol && !negated && !is_word("in")) return false;
  if (negated) advance();
  *operand = {
      .op = Op::kOperand, .line = token().line, .text = token().text, .number = negated ? 1 : 0};
  advance();
  return true;
}

uint32_t Parser::comparison() {
  const uint32_t line = token().line;
  const uint32_t left = binary(0);
  Array<uint32_t> parts(allocator());
  Node operand;
  while (ok() && take_comparison(&operand)) {
    if (parts.empty()) keep(parts.push(left));
    operand.a = binary(0);
    keep(parts.push(add(operand)));
  }
  return parts.empty() ? left : add({.op = Op::kCompare, .line = line}, parts);
}

// Level 0: + and -, 1: ~, 2: * / // % (Jinja's order).
uint32_t Parser::binary(int level) {
  if (level == 3) return power();
  uint32_t left = binary(level + 1);
  while (ok()) {
    const Token op = token();
    const bool here = level == 0   ? is("+") || is("-")
                      : level == 1 ? is("~")
                                   : is("*") || is("/") || is("//") || is("%");
    if (!here) return left;
    advance();
    const uint32_t right = binary(level + 1);
    left = add({.op = Op::kBinary, .line = op.line, .a = left, .b = right, .text = op.text});
  }
  return left;
}

// Jinja's powers are read from the left.
uint32_t Parser::power() {
  uint32_t left = unary(true);
  while (ok() && is("**")) {
    const Token op = token();
    advance();
    const uint32_t right = unary(true);
    left = add({.op = Op::kBinary, .line = op.line, .a = left, .b = right, .text = op.text});
  }
  return left;
}

uint32_t Parser::unary(bool with_filters) {
  const uint32_t line = token().line;
  Array<int64_t> signs(allocator());
  for (; ok() && (is("-") || is("+")); advance()) keep(signs.push(is("-") ? -1 : 1));
  uint32_t value = postfix(primary());
  for (size_t i = signs.size(); ok() && i > 0; --i) {
    value = add({.op = Op::kSign, .line = line, .a = value, .number = signs[i - 1]});
  }
  return with_filters ? filters(value) : value;
}

uint32_t Parser::literal(const Token& t) {
  const std::string_view word = view();
  advance();
  if (word == "true" || word == "True") return add({.op = Op::kTrue, .line = t.line});
  if (word == "false" || word == "False") return add({.op = Op::kFalse, .line = t.line});
  if (word == "none" || word == "None") return add({.op = Op::kNone, .line = t.line});
  if (word == "caller") macro_names_ |= kReadsCaller;
  if (word == "varargs") macro_names_ |= kReadsVarargs;
  if (word == "kwargs") macro_names_ |= kReadsKwargs;
  return add({.op = Op::kName, .line = t.line, .text = t.text});
}

// Python's integers and fractions.
uint32_t Parser::number(const Token& t) {
  const std::string_view text = view();
  double value = 0;
  int64_t whole = 0;
  const bool fraction = text.find_first_of(".eE") != std::string_view::npos &&
                        !text.starts_with("0x") && !text.starts_with("0X");
  const Reading reading = fraction ? read_float(text, &value) : read_integer(text, 0, &whole);
  if (reading == Reading::kNotOne) return unexpected("a number");
  advance();
  if (reading == Reading::kTooLong) {
    return unsupported(
        t.line, fraction ? "a fraction of more than 40 digits" : "a number of more than 18 digits");
  }
  if (!fraction) return add({.op = Op::kInt, .line = t.line, .number = whole});
  return add({.op = Op::kFloat, .line = t.line, .number = std::bit_cast<int64_t>(value)});
}

// Strings side by side are one.
uint32_t Parser::string(const Token& t) {
  advance();
  if (token().kind != TokenKind::kString) {
    return add({.op = Op::kString, .line = t.line, .text = t.text});
  }
  Array<char> joined(allocator());
  keep(joined.append(program_.text.data() + t.text.begin, t.text.size));
  while (ok() && token().kind == TokenKind::kString) {
    keep(joined.append(view().data(), view().size()));
    advance();
  }
  return add({.op = Op::kString, .line = t.line, .text = new_text({joined.data(), joined.size()})});
}

uint32_t Parser::primary() {
  const Token t = token();
  if (t.kind == TokenKind::kName) return literal(t);
  if (t.kind == TokenKind::kString) return string(t);
  if (t.kind == TokenKind::kNumber) return number(t);
  if (take("[")) return list(']', Op::kList);
  if (take("(")) return group();
  if (take("{")) return dict();
  return unexpected("a value");
}

// Elements up to `close`; the opening bracket has been consumed.
uint32_t Parser::list(char close, Op op) {
  const uint32_t line = token().line;
  const std::string_view end(&close, 1);
  Array<uint32_t> elements(allocator());
  while (ok() && !is(end)) {
    keep(elements.push(expression()));
    if (!is(end)) expect(",");
  }
  expect(end);
  return add({.op = op, .line = line}, elements);
}

// (x) is x; (x, y) and () are tuples, treated as lists.
uint32_t Parser::group() {
  if (is(")")) return list(')', Op::kList);
  const uint32_t line = token().line;
  const uint32_t first = expression();
  if (take(")")) return first;
  Array<uint32_t> elements(allocator());
  keep(elements.push(first));
  while (ok() && !is(")")) {
    expect(",");
    if (ok() && !is(")")) keep(elements.push(expression()));
  }
  expect(")");
  return add({.op = Op::kList, .line = line}, elements);
}

uint32_t Parser::dict() {
  const uint32_t line = token().line;
  Array<uint32_t> entries(allocator());
  while (ok() && !is("}")) {
    keep(entries.push(expression()));
    expect(":");
    keep(entries.push(expression()));
    if (!is("}")) expect(",");
  }
  expect("}");
  return add({.op = Op::kDict, .line = line}, entries);
}

uint32_t Parser::postfix(uint32_t value) {
  while (ok()) {
    const uint32_t line = token().line;
    if (take(".")) {
      if (token().kind == TokenKind::kNumber) {  // a.0 is a[0]
        const uint32_t index = number(token());
        value = add({.op = Op::kItem, .line = line, .a = value, .b = index});
        continue;
      }
      value = add({.op = Op::kAttribute, .line = line, .a = value, .text = name("a name")});
    } else if (take("[")) {
      value = subscript(value);
    } else if (take("(")) {
      Array<uint32_t> given(allocator());
      arguments(given);
      value = add({.op = Op::kCall, .line = line, .a = value}, given);
    } else {
      return value;
    }
  }
  return value;
}

uint32_t Parser::subscript(uint32_t value) {
  const uint32_t line = token().line;
  Array<uint32_t> parts(allocator());
  bool is_slice = false;
  for (int i = 0; i < 3 && ok() && !is("]"); ++i) {
    keep(parts.push(is(":") ? kNoNode : expression()));
    if (!take(":")) break;
    is_slice = true;
  }
  if (parts.empty()) return unexpected("an index");
  expect("]");
  if (!is_slice) return add({.op = Op::kItem, .line = line, .a = value, .b = parts[0]});
  while (parts.size() < 3 && ok()) keep(parts.push(kNoNode));
  return add({.op = Op::kSlice, .line = line, .a = value}, parts);
}

// Up to ")"; the opening parenthesis has been consumed.
void Parser::arguments(Array<uint32_t>& out) {
  while (ok() && !is(")")) {
    const Token t = token();
    if (const bool mapping = is("**"); mapping || is("*")) {
      advance();
      const uint32_t all = expression();
      keep(out.push(add({.op = Op::kSpread, .line = t.line, .a = all, .number = mapping ? 2 : 1})));
      if (!is(")")) expect(",");
      continue;
    }
    const bool named = t.kind == TokenKind::kName && at_ + 1 < tokens_.size() &&
                       tokens_[at_ + 1].kind == TokenKind::kOperator &&
                       program_.view(tokens_[at_ + 1].text) == "=";
    if (named) at_ += 2;
    uint32_t value = expression();
    if (named) value = add({.op = Op::kKeyword, .line = t.line, .a = value, .text = t.text});
    keep(out.push(value));
    if (!is(")")) expect(",");
  }
  expect(")");
}

// NAME(ARGUMENTS) behind a "|".
uint32_t Parser::filter(uint32_t value) {
  const uint32_t line = token().line;
  const Text called = dotted_name("a filter");
  Array<uint32_t> given(allocator());
  if (take("(")) arguments(given);
  return add({.op = Op::kFilter, .line = line, .a = value, .text = called}, given);
}

uint32_t Parser::filters(uint32_t value) {
  while (ok()) {
    if (take("|")) {
      value = filter(value);
    } else if (take_word("is")) {
      value = test(value);
    } else if (is("(")) {
      value = postfix(value);
    } else {
      return value;
    }
  }
  return value;
}

uint32_t Parser::test(uint32_t value) {
  const uint32_t line = token().line;
  const bool negated = take_word("not");
  Text what = token().text;
  if (is("==") || is("!=")) {
    advance();
  } else {
    what = dotted_name("a test");
  }
  Array<uint32_t> given(allocator());
  const TokenKind kind = token().kind;
  const bool word = kind == TokenKind::kName && !is_word("else") && !is_word("or") &&
                    !is_word("and") && !is_word("is") && !is_word("if") && !is_word("not") &&
                    !is_word("in");
  if (take("(")) {
    arguments(given);
  } else if (word || kind == TokenKind::kString || kind == TokenKind::kNumber || is("[") ||
             is("{")) {
    keep(given.push(unary(false)));
  }
  value = add({.op = Op::kTest, .line = line, .a = value, .text = what}, given);
  return negated ? add({.op = Op::kNot, .line = line, .a = value}) : value;
}

}  // namespace moe::jinja
