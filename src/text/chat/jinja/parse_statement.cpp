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
    const uint32_t value = expression();
    if (token().kind != TokenKind::kOutputEnd) return unexpected("the end of the tag");
    advance();
    return add({.op = Op::kOutput, .line = t.line, .a = value});
  }
  advance();  // only a tag can start here: its contents were consumed with it
  if (take_word("if")) return if_statement(t.line);
  if (take_word("for")) return for_statement(t.line);
  if (take_word("set")) return set_statement(t.line);
  if (take_word("macro")) return macro_statement(t.line);
  if (take_word("generation")) return generation_statement();
  if (is_word("break") || is_word("continue")) {
    const Op op = is_word("break") ? Op::kBreak : Op::kContinue;
    if (loops_ == 0) return unexpected("a loop around it");
    advance();
    expect_block_end();
    return add({.op = op, .line = t.line});
  }
  if (token().kind != TokenKind::kName) return unexpected("a statement");
  const std::string_view tag = slice(view(), 0, 40);
  return fail(MOE_ERR_UNSUPPORTED, "the tag {%% %.*s %%} in this place",
              static_cast<int>(tag.size()), tag.data());
}

uint32_t Parser::if_statement(uint32_t line) {
  static constexpr const char* kEnds[] = {"elif", "else", "endif"};
  Array<uint32_t> parts(allocator());
  for (bool more = true; ok() && more;) {
    keep(parts.push(expression()));
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
  Array<uint32_t> targets(allocator());
  do {
    keep(targets.push(add({.op = Op::kName, .line = line, .text = name("a name")})));
  } while (ok() && take(","));
  if (!take_word("in")) return unexpected("'in'");
  const uint32_t iterable = choice_free();
  const uint32_t condition = take_word("if") ? choice_free() : kNoNode;
  if (is_word("recursive")) return fail(MOE_ERR_UNSUPPORTED, "a recursive loop");
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
  keep(parts.append(targets.data(), targets.size()));
  return add({.op = Op::kFor, .line = line}, parts);
}

// x, ns.x, or x, y
uint32_t Parser::target() {
  const uint32_t line = token().line;
  uint32_t first = add({.op = Op::kName, .line = line, .text = name("a name")});
  if (take(".")) {
    return add({.op = Op::kAttribute, .line = line, .a = first, .text = name("a name")});
  }
  if (!is(",")) return first;
  Array<uint32_t> names(allocator());
  keep(names.push(first));
  while (ok() && take(",")) {
    keep(names.push(add({.op = Op::kName, .line = line, .text = name("a name")})));
  }
  return add({.op = Op::kList, .line = line}, names);
}

uint32_t Parser::set_statement(uint32_t line) {
  static constexpr const char* kEnd = "endset";
  const uint32_t to = target();
  if (!ok()) return kNoNode;
  if (take("=")) {
    uint32_t value = expression();
    if (is(",")) {  // x = a, b
      Array<uint32_t> elements(allocator());
      keep(elements.push(value));
      while (ok() && take(",")) keep(elements.push(expression()));
      value = add({.op = Op::kList, .line = line}, elements);
    }
    expect_block_end();
    return add({.op = Op::kSet, .line = line, .a = to, .b = value});
  }
  if (is("|")) return fail(MOE_ERR_UNSUPPORTED, "a filter on {%% set %%}");
  expect_block_end();
  const uint32_t inside = body(&kEnd, 1);
  expect_block(kEnd);
  expect_block_end();
  return add({.op = Op::kSetBlock, .line = line, .a = to, .b = inside});
}

uint32_t Parser::macro_statement(uint32_t line) {
  static constexpr const char* kEnd = "endmacro";
  const Text called = name("a name");
  expect("(");
  Array<uint32_t> parameters(allocator());
  while (ok() && !is(")")) {
    const uint32_t at = token().line;
    const Text parameter = name("a parameter");
    const uint32_t otherwise = take("=") ? expression() : kNoNode;
    keep(parameters.push(add({.op = Op::kKeyword, .line = at, .a = otherwise, .text = parameter})));
    if (!is(")")) expect(",");
  }
  expect(")");
  expect_block_end();
  const int around = loops_;
  loops_ = 0;  // a macro cannot leave an enclosing loop
  const uint32_t inside = body(&kEnd, 1);
  loops_ = around;
  expect_block(kEnd);
  expect_block_end();
  return add({.op = Op::kMacro, .line = line, .a = inside, .text = called}, parameters);
}

// {% generation %} only marks training data.
uint32_t Parser::generation_statement() {
  static constexpr const char* kEnd = "endgeneration";
  expect_block_end();
  const uint32_t inside = body(&kEnd, 1);
  expect_block(kEnd);
  expect_block_end();
  return inside;
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
