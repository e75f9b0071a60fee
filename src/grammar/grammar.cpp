// SPDX-License-Identifier: MIT
// Compiles a grammar from its text.
#include "src/grammar/grammar.h"

#include "src/grammar/automaton.h"
#include "src/grammar/schema.h"

namespace moe::grammar {
namespace {

Status compile_regex(std::string_view text, Network& network, uint32_t* root) {
  Expressions expressions(network.allocator());
  uint32_t expr = 0;
  MOE_TRY(parse_regex(text, expressions, &expr));
  *root = network.add_rule();
  uint32_t start = kNever;
  MOE_TRY(build_match(expressions, expr, Match::kWhole, Spelling::kPlain, network, kEnd, &start));
  network.define(*root, start);
  return network.status();
}

}  // namespace

Status Grammar::create(Kind kind, std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return Status::error(MOE_ERR_TOO_LONG, "grammar: expected at most %zu bytes, found %zu",
                         kMaxTextBytes, text.size());
  }
  uint32_t root = 0;
  switch (kind) {
    case Kind::kJsonSchema:
      MOE_TRY(compile_schema(text, network_, &root));
      break;
    case Kind::kGbnf:
      MOE_TRY(parse_gbnf(text, network_, &root));
      break;
    case Kind::kRegex:
      MOE_TRY(compile_regex(text, network_, &root));
      break;
  }
  return network_.finish(root, tokens_.writable());
}

}  // namespace moe::grammar
