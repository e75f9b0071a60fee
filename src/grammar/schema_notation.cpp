// SPDX-License-Identifier: MIT
// Strings and names in JSON and in another notation: between marks, or as they are.
#include <algorithm>

#include "src/base/number.h"
#include "src/grammar/schema_compiler.h"
#include "src/grammar/token_trie.h"

namespace moe::grammar {
namespace {

// A name without marks: nothing in it ends it, begins a mark, or is white space that a reader
// drops.
#define PART "[^\\s\\x00-\\x1f\\x7f:<{}\\[\\],\"]+"
constexpr std::string_view kBareName = PART "(?: +" PART ")*";

// Unsigned, so that bytes of UTF-8 come in the order of characters.
uint8_t order(char c) { return static_cast<uint8_t>(ascii_lower(c)); }

}  // namespace

uint32_t SchemaCompiler::quote(uint32_t next) {
  return notation_->token >= 0 ? read_token(network_, notation_->token, next)
                               : network_.literal(notation_->quote, next);
}

// The texts of strings that satisfy the schemas, without those that contain the mark.
Status SchemaCompiler::marked_texts(const Parts& parts, Automaton& out) {
  String pattern(allocator());
  MOE_TRY(regex_of(notation_->quote, pattern));
  Expressions e(allocator());
  uint32_t expr = 0;
  MOE_TRY(parse_regex(pattern.view(), e, &expr));
  Automaton wrong(allocator());
  MOE_TRY(wrong.from_expression(e, expr, Match::kAnywhere));
  Automaton texts(allocator());
  bool any = true;
  if (!parts.empty()) MOE_TRY(string_set(parts, texts, &any));
  if (any) MOE_TRY(texts.from_lengths(0, kNoLimit));
  const Status status = out.combine(texts, wrong, Automaton::Op::kWithout);
  MOE_TRY(parts.empty() ? status : at(parts[0].node, status));
  return spend(out.n_cells());
}

uint32_t SchemaCompiler::any_marked_text() {
  Automaton texts(allocator());
  network_.fail(marked_texts(Parts(allocator()), texts));
  if (!network_.status().ok()) return kNever;
  return quote(texts.build(network_, Spelling::kPlain, quote(kEnd)));
}

// A string that is `text`.
uint32_t SchemaCompiler::quoted(std::string_view text, uint32_t next) {
  if (notation_ == nullptr) {
    const uint32_t end = network_.byte('"', '"', next);
    return network_.byte('"', '"', read_text(network_, text, Spelling::kJson, end));
  }
  if (text.find(notation_->quote) != std::string_view::npos) return kNever;
  return quote(read_text(network_, text, Spelling::kPlain, quote(next)));
}

// The name of a member and the colon behind it.
uint32_t SchemaCompiler::member_name(std::string_view name, uint32_t value) {
  const uint32_t behind = network_.byte(':', ':', value);
  const bool bare = notation_ != nullptr && bare_names().contains(name);
  return bare ? network_.literal(name, behind) : quoted(name, behind);
}

const Automaton& SchemaCompiler::bare_names() {
  if (bare_names_.n_states() == 0) {
    Expressions e(allocator());
    uint32_t expr = 0;
    network_.fail(parse_regex(kBareName, e, &expr));
    network_.fail(bare_names_.from_expression(e, expr, Match::kWhole));
  }
  return bare_names_;
}

// As the templates sort them, with which the models were trained: names that differ in case alone
// stay in order. std::stable_sort would take memory past the allocator.
void SchemaCompiler::sort_names(Array<Property>& named) {
  for (size_t i = 0; i < named.size(); ++i) {
    named[i].rule = static_cast<uint32_t>(i);  // a place, until the value has its rule
  }
  const auto before = [](std::string_view a, std::string_view b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](char x, char y) { return order(x) < order(y); });
  };
  const auto less = [&](const Property& a, const Property& b) {
    if (before(a.name, b.name)) return true;
    return !before(b.name, a.name) && a.rule < b.rule;
  };
  std::make_heap(named.begin(), named.end(), less);  // less code than std::sort
  std::sort_heap(named.begin(), named.end(), less);
}

}  // namespace moe::grammar
