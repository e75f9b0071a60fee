// SPDX-License-Identifier: MIT
#pragma once
// Recursive descent over the tokens. The first error is stored; every function then returns soon.

#include <string_view>

#include "src/text/chat/jinja/program.h"

namespace moe::jinja {

class Parser {
 public:
  Parser(Program& program, const Array<Token>& tokens) : program_(program), tokens_(tokens) {}

  /// The whole template.
  Status run();

 private:
  // statements (parse_statement.cpp)
  uint32_t body(const char* const* ends, size_t n_ends);
  uint32_t statement();
  uint32_t if_statement(uint32_t line);
  uint32_t for_statement(uint32_t line);
  uint32_t set_statement(uint32_t line);
  uint32_t macro_statement(uint32_t line);
  void parameters(Array<uint32_t>& out);
  uint32_t macro(uint32_t line, Text called, const Array<uint32_t>& parameters, const char* end);
  uint32_t call_statement(uint32_t line);
  uint32_t filter_statement(uint32_t line);
  uint32_t with_statement(uint32_t line);
  uint32_t scope_statement(uint32_t line, const char* end);
  uint32_t unsupported_statement(uint32_t line);
  uint32_t block(const char* end);
  uint32_t target();
  uint32_t one_target();
  uint32_t block_statement(uint32_t line);
  uint32_t autoescape_statement(uint32_t line);
  bool at_block(std::string_view name) const;
  void expect_block(std::string_view name);
  void expect_block_end();

  // expressions (parse_expression.cpp)
  uint32_t expression();
  uint32_t choice_free();  // without "x if y else z"
  uint32_t tuple(bool with_choice);
  uint32_t binary(int level);
  uint32_t negation();
  uint32_t comparison();
  bool take_comparison(Node* operand);
  uint32_t power();
  uint32_t unary(bool with_filters);
  uint32_t primary();
  uint32_t literal(const Token& token);
  uint32_t number(const Token& token);
  uint32_t string(const Token& token);
  uint32_t list(char close, Op op);
  uint32_t group();
  uint32_t dict();
  uint32_t postfix(uint32_t value);
  uint32_t filters(uint32_t value);
  uint32_t filter(uint32_t value);
  uint32_t subscript(uint32_t value);
  uint32_t test(uint32_t value);
  void arguments(Array<uint32_t>& out);

  // shared
  const Token& token() const { return tokens_[at_]; }
  std::string_view view() const { return program_.view(token().text); }
  bool is(std::string_view op) const {
    return token().kind == TokenKind::kOperator && view() == op;
  }
  bool is_word(std::string_view word) const {
    return token().kind == TokenKind::kName && view() == word;
  }
  bool next_is_word(std::string_view word) const {
    return at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::kName &&
           program_.view(tokens_[at_ + 1].text) == word;
  }
  bool take(std::string_view op);
  bool take_word(std::string_view word);
  void expect(std::string_view op);
  Text name(const char* what);
  Text dotted_name(const char* what);
  bool ok() const { return status_.ok(); }
  void advance() {
    if (token().kind != TokenKind::kEnd) ++at_;
  }
  uint32_t fail(moe_status code, const char* format, ...) MOE_FORMAT(3, 4);
  uint32_t unexpected(const char* expected);
  uint32_t unsupported(uint32_t line, std::string_view what);
  Text new_text(std::string_view text);
  uint32_t add(Node node);
  uint32_t add(Node node, const Array<uint32_t>& children);
  const Allocator& allocator() const { return program_.nodes.allocator(); }
  void keep(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  Program& program_;
  const Array<Token>& tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
  int64_t macro_names_ = 0;  // MacroNames read so far in the innermost macro
  Status status_;
};

}  // namespace moe::jinja
