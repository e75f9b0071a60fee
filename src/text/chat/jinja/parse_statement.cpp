// SPDX-License-Identifier: MIT
// Parses text and tags to statements; an unknown tag becomes a statement that fails if it is
// reached.
#include <iterator>

#include "src/base/string.h"
#include "src/text/characters/utf8.h"
#include "src/text/chat/jinja/parser.h"

namespace moe::jinja {

bool Parser::at_block(std::string_view name) const {
  return token().kind == TokenKind::kBlockBegin && next_is_word(name);
}

void Parser::expect_block_end() {
  if (token().kind != TokenKind::kBlockEnd) {
    unexpected("the end of the tag");
    return;
  }
  advance();
}

void Parser::expect_block(std::string_view name) {
  if (!at_block(name)) {
    unexpected("the end of the block");
    return;
  }
  at_ += 2;
}

// Statements up to one of the named blocks, which is left to the caller.
uint32_t Parser::body(const char* const* ends, size_t n_ends) {
  if (++nesting_ > kMaxNesting) {
    fail(MOE_ERR_UNSUPPORTED, "more than %d levels in each other", kMaxNesting);
  }
  const uint32_t line = token().line;
  Array<uint32_t> statements(allocator());
  while (ok() && token().kind != TokenKind::kEnd) {
    bool ended = false;
    for (size_t i = 0; i < n_ends; ++i) ended = ended || at_block(ends[i]);
    if (ended) break;
    keep(statements.push(statement()));
  }
  --nesting_;
  return add({.op = Op::kBody, .line = line}, statements);
}

uint32_t Parser::statement() {
  const Token t = token();
  if (t.kind == TokenKind::kData) {
    advance();
    return add({.op = Op::kData, .line = t.line, .text = t.text});
  }
  if (t.kind == TokenKind::kOutputBegin) {
    advance();
    const uint32_t value = tuple(true);
    if (token().kind != TokenKind::kOutputEnd) return unexpected("the end of the tag");
    advance();
    return add({.op = Op::kOutput, .line = t.line, .a = value});
  }
  advance();  // only a tag can start here: its contents were consumed with it
  if (take_word("if")) return if_statement(t.line);
  if (take_word("for")) return for_statement(t.line);
  if (take_word("set")) return set_statement(t.line);
  if (take_word("macro")) return macro_statement(t.line);
  if (take_word("call")) return call_statement(t.line);
  if (take_word("filter")) return filter_statement(t.line);
  if (take_word("with")) return with_statement(t.line);
  if (take_word("block")) return block_statement(t.line);
  if (take_word("autoescape")) return autoescape_statement(t.line);
  // Marks training data.
  if (take_word("generation")) return scope_statement(t.line, "endgeneration");
  if (is_word("break") || is_word("continue")) {
    const Op op = is_word("break") ? Op::kBreak : Op::kContinue;
    if (loops_ == 0) return unexpected("a loop around it");
    advance();
    expect_block_end();
    return add({.op = op, .line = t.line});
  }
  if (token().kind != TokenKind::kName) return unexpected("a statement");
  return unsupported_statement(t.line);
}

// A tag that is not known fails when it is reached; its contents are statements like any others.
uint32_t Parser::unsupported_statement(uint32_t line) {
  static constexpr std::string_view kInner[] = {"elif",    "else",         "endif",   "endfor",
                                                "endset",  "endmacro",     "endcall", "endfilter",
                                                "endwith", "endgeneration"};
  for (const std::string_view inner : kInner) {
    if (is_word(inner)) return unexpected("the block that this tag belongs to");
  }
  char text[64] = "the tag {% ";
  size_t n = 11;
  for (const char c : slice(view(), 0, 40)) text[n++] = c;
  for (const char c : {' ', '%', '}'}) text[n++] = c;
  while (token().kind != TokenKind::kBlockEnd && token().kind != TokenKind::kEnd) advance();
  expect_block_end();
  return unsupported(line, {text, n});
}

// Statements up to the tag `end`, which is consumed.
uint32_t Parser::block(const char* end) {
  expect_block_end();
  const uint32_t inside = body(&end, 1);
  expect_block(end);
  expect_block_end();
  return inside;
}

uint32_t Parser::if_statement(uint32_t line) {
  static constexpr const char* kEnds[] = {"elif", "else", "endif"};
  Array<uint32_t> parts(allocator());
  for (bool more = true; ok() && more;) {
    keep(parts.push(tuple(false)));
    expect_block_end();
    keep(parts.push(body(kEnds, std::size(kEnds))));
    more = at_block("elif");
    if (more) at_ += 2;
  }
  if (ok() && at_block("else")) {
    at_ += 2;
    expect_block_end();
    keep(parts.push(body(kEnds + 2, 1)));
  }
  expect_block("endif");
  expect_block_end();
  return add({.op = Op::kIf, .line = line}, parts);
}

uint32_t Parser::for_statement(uint32_t line) {
  static constexpr const char* kEnds[] = {"else", "endfor"};
  const uint32_t to = target();
  if (!ok()) return kNoNode;
  if (!take_word("in")) return unexpected("'in'");
  const uint32_t iterable = tuple(false);
  const uint32_t condition = take_word("if") ? expression() : kNoNode;
  const int64_t recursive = take_word("recursive") ? 1 : 0;
  expect_block_end();
  ++loops_;
  const uint32_t inside = body(kEnds, std::size(kEnds));
  --loops_;
  uint32_t otherwise = kNoNode;
  if (ok() && at_block("else")) {
    at_ += 2;
    expect_block_end();
    otherwise = body(kEnds + 1, 1);
  }
  expect_block("endfor");
  expect_block_end();
  Array<uint32_t> parts(allocator());
  for (const uint32_t part : {iterable, condition, inside, otherwise}) keep(parts.push(part));
  return add({.op = Op::kFor, .line = line, .a = to, .number = recursive}, parts);
}

// x, ns.x or (x, y)
uint32_t Parser::one_target() {
  const uint32_t line = token().line;
  if (++nesting_ > kMaxNesting) {
    return fail(MOE_ERR_UNSUPPORTED, "more than %d levels in each other", kMaxNesting);
  }
  uint32_t out = kNoNode;
  if (take("(")) {
    out = target();
    expect(")");
  } else {
    out = add({.op = Op::kName, .line = line, .text = name("a name")});
    if (take(".")) {
      out = add({.op = Op::kAttribute, .line = line, .a = out, .text = name("a name")});
    }
  }
  --nesting_;
  return out;
}

// One target, or several with commas between them.
uint32_t Parser::target() {
  const uint32_t line = token().line;
  const uint32_t first = one_target();
  if (!is(",")) return first;
  Array<uint32_t> all(allocator());
  keep(all.push(first));
  while (ok() && take(",")) {
    if (is("=") || is(")") || is_word("in")) break;
    keep(all.push(one_target()));
  }
  return add({.op = Op::kList, .line = line}, all);
}

uint32_t Parser::set_statement(uint32_t line) {
  const uint32_t to = target();
  if (!ok()) return kNoNode;
  if (take("=")) {
    const uint32_t value = tuple(true);
    expect_block_end();
    return add({.op = Op::kSet, .line = line, .a = to, .b = value});
  }
  const uint32_t capture = add({.op = Op::kCapture, .line = line});
  uint32_t value = capture;
  while (ok() && take("|")) value = filter(value);
  const uint32_t inside = block("endset");
  if (!ok()) return kNoNode;
  program_.nodes[capture].a = inside;
  return add({.op = Op::kSet, .line = line, .a = to, .b = value});
}

// "(a, b=1)" of a macro or call block, after its opening parenthesis.
void Parser::parameters(Array<uint32_t>& out) {
  while (ok() && !is(")")) {
    const uint32_t at = token().line;
    const Text parameter = name("a parameter");
    const uint32_t otherwise = take("=") ? expression() : kNoNode;
    keep(out.push(add({.op = Op::kKeyword, .line = at, .a = otherwise, .text = parameter})));
    if (!is(")")) expect(",");
  }
  expect(")");
}

// Body and end of a macro.
uint32_t Parser::macro(uint32_t line, Text called, const Array<uint32_t>& parameters,
                       const char* end) {
  const int around = loops_;
  const int64_t names_around = macro_names_;
  loops_ = 0;  // a macro cannot leave an enclosing loop
  macro_names_ = 0;
  const uint32_t inside = block(end);
  const int64_t names = macro_names_;
  loops_ = around;
  macro_names_ |= names_around;
  return add({.op = Op::kMacro, .line = line, .a = inside, .text = called, .number = names},
             parameters);
}

uint32_t Parser::macro_statement(uint32_t line) {
  const Text called = name("a name");
  expect("(");
  Array<uint32_t> list(allocator());
  parameters(list);
  return macro(line, called, list, "endmacro");
}

// {% call(x) f(1) %} ... {% endcall %} is f(1, caller=MACRO), where MACRO(x) writes the body.
uint32_t Parser::call_statement(uint32_t line) {
  Array<uint32_t> list(allocator());
  if (take("(")) parameters(list);
  const uint32_t called = expression();
  if (ok() && program_.nodes[called].op != Op::kCall) return unexpected("a call");
  const Text caller = new_text("caller");
  const uint32_t body = macro(line, caller, list, "endcall");
  const uint32_t given = add({.op = Op::kKeyword, .line = line, .a = body, .text = caller});
  if (!ok()) return kNoNode;
  const Node call = program_.nodes[called];
  Array<uint32_t> arguments(allocator());
  keep(arguments.append(program_.children.data() + call.first, call.count));
  keep(arguments.push(given));
  const uint32_t value = add({.op = Op::kCall, .line = call.line, .a = call.a}, arguments);
  return add({.op = Op::kOutput, .line = line, .a = value});
}

uint32_t Parser::filter_statement(uint32_t line) {
  const uint32_t capture = add({.op = Op::kCapture, .line = line});
  uint32_t value = filter(capture);
  while (ok() && take("|")) value = filter(value);
  const uint32_t inside = block("endfilter");
  if (!ok()) return kNoNode;
  program_.nodes[capture].a = inside;
  return add({.op = Op::kOutput, .line = line, .a = value});
}

uint32_t Parser::with_statement(uint32_t line) {
  Array<uint32_t> values(allocator());
  while (ok() && token().kind != TokenKind::kBlockEnd) {
    if (!values.empty()) expect(",");
    keep(values.push(target()));
    expect("=");
    keep(values.push(expression()));
  }
  const uint32_t inside = block("endwith");
  return add({.op = Op::kWith, .line = line, .a = inside}, values);
}

// A template that is not extended writes its blocks where they stand.
uint32_t Parser::block_statement(uint32_t line) {
  static constexpr const char* kEnd = "endblock";
  (void)name("a name");
  while (ok() && (take_word("scoped") || take_word("required"))) continue;
  expect_block_end();
  const uint32_t inside = body(&kEnd, 1);
  expect_block(kEnd);
  if (token().kind == TokenKind::kName) advance();
  expect_block_end();
  return add({.op = Op::kWith, .line = line, .a = inside});
}

uint32_t Parser::autoescape_statement(uint32_t line) {
  const bool off = is_word("false") || is_word("False");
  (void)expression();
  const uint32_t scope = scope_statement(line, "endautoescape");
  return off ? scope : unsupported(line, "{% autoescape %}");
}

uint32_t Parser::scope_statement(uint32_t line, const char* end) {
  const uint32_t inside = block(end);
  return add({.op = Op::kWith, .line = line, .a = inside});
}

Status Parser::run() {
  program_.root = body(nullptr, 0);
  return status_;
}

Status parse(std::string_view source, Program& program) {
  if (source.size() > kMaxSourceBytes) {
    return Status::error(MOE_ERR_FORMAT, "chat template: %zu bytes, at most %zu", source.size(),
                         kMaxSourceBytes);
  }
  if (!utf8_is_valid(source)) {
    return Status::error(MOE_ERR_FORMAT, "chat template: expected UTF-8");
  }
  MOE_TRY(program.text.reserve(source.size() + 1024));
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) MOE_TRY(program.text.push(source[i] == '\r' ? '\n' : source[i]));
  }
  if (!program.text.empty() && program.text.back() == '\n') program.text.pop();
  Array<Token> tokens(program.text.allocator());
  MOE_TRY(split_tokens(program, tokens).with_context("chat template"));
  return Parser(program, tokens).run().with_context("chat template");
}

}  // namespace moe::jinja
