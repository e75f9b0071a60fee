// SPDX-License-Identifier: MIT
// Objects whose members stand in tags, with strings that have neither quotes nor escapes.
#include "src/grammar/schema_compiler.h"
#include "src/text/chat/tools/argument.h"

namespace moe::grammar {
namespace {

#define SPACE "[ \\t\\n\\r]*"

// The texts that a reader takes as JSON, by type; of lists and objects the beginning.
constexpr std::pair<uint32_t, std::string_view> kForms[] = {
    {kNumberType, "^" SPACE "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+\\-]?[0-9]+)?" SPACE "$"},
    {kBoolType, "^" SPACE "(?:true|false|True|False)" SPACE "$"},
    {kNullType, "^" SPACE "(?:null|None)" SPACE "$"},
    {kListType, "^" SPACE "\\["},
    {kObjectType, "^" SPACE "\\{"}};

}  // namespace

Status regex_of(std::string_view text, String& to) {
  for (const char& c : text) {
    const bool syntax = std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos;
    if (syntax) MOE_TRY(to.append("\\"));
    MOE_TRY(to.append({&c, 1}));
  }
  return {};
}

// The texts that are no string for a reader that knows these types, or end too early.
Status SchemaCompiler::misread(uint32_t types, Automaton& out) const {
  String text(allocator());
  MOE_TRY(regex_of(tags_->value_end, text));
  for (const auto& [type, form] : kForms) {
    if (types != 0 && (types & (type | kAnyType)) == 0) continue;
    MOE_TRY(text.append("|"));
    MOE_TRY(text.append(form));
  }
  Expressions e(allocator());
  uint32_t expr = 0;
  MOE_TRY(parse_regex(text.view(), e, &expr));
  return out.from_expression(e, expr, Match::kAnywhere);
}

// Strings that satisfy the schemas, as they are.
Status SchemaCompiler::plain_text(const Parts& parts, uint32_t types, uint32_t* out) {
  *out = kNever;
  if ((types & kTypeString) == 0) return {};
  Automaton wrong(allocator());
  MOE_TRY(misread(parts.reader, wrong));
  if (listed(parts)) {
    Array<uint32_t> targets(allocator());
    MOE_TRY(each_value(parts, kTypeString, [&](uint32_t value) -> Status {
      if (wrong.contains(json_.text(value))) return {};
      return targets.push(read_text(network_, json_.text(value), Spelling::kPlain, kEnd));
    }));
    *out = network_.split(targets.span());
    return {};
  }
  Automaton texts(allocator());
  bool any = false;
  MOE_TRY(string_set(parts, texts, &any));
  if (any) MOE_TRY(texts.from_lengths(0, kNoLimit));
  Automaton right(allocator());
  const Status status = right.combine(texts, wrong, Automaton::Op::kWithout);
  MOE_TRY(parts.empty() ? status : at(parts[0].node, status));
  MOE_TRY(spend(right.n_cells()));
  *out = right.build(network_, Spelling::kPlain, kEnd);
  return {};
}

Status SchemaCompiler::tags(const Parts& parts, uint32_t next, uint32_t* out) {
  Array<Property> named(allocator());
  MOE_TRY(properties(parts, named));
  uint32_t min = 0;
  uint32_t max = 0;
  MOE_TRY(least_and_most(parts, "minProperties", "maxProperties", &min, &max));
  uint32_t n_required = 0;
  for (const Property& p : named) n_required += p.required ? 1 : 0;
  if (min > n_required || max < named.size()) {
    return unsupported(parts[0].node,
                       "minProperties or maxProperties, where the model writes arguments in tags");
  }
  uint32_t node = next;
  for (size_t i = named.size(); i-- > 0;) {
    const Property& p = named[i];
    uint32_t rules[2] = {};
    MOE_TRY(spend(json_.n_nodes()));  // `types` looks through the schema
    for (size_t k = 0; k < 2; ++k) {
      Parts value(allocator());
      MOE_TRY(value_of(parts, p.name, value));
      value.mode = k == 0 ? Mode::kWithout : Mode::kPlainText;
      if (k == 1) value.reader = tags_->types(tags_->user, p.name);
      MOE_TRY(rule_of(value, &rules[k]));
    }
    if (p.allowed && !tags_->writable(tags_->user, p.name)) {
      String what(allocator());
      MOE_TRY(what.append("no tag can hold the property's name '"));
      MOE_TRY(what.append(slice(p.name, 0, 60)));
      MOE_TRY(what.append("'"));
      return unsupported(parts[0].node, what.c_str());
    }
    const uint32_t taken =
        !p.allowed ? kNever : tags_->argument(tags_->user, network_, p.name, rules, node);
    node = p.required ? taken : network_.optional(taken, node);
  }
  *out = node;
  return network_.status();
}

Status SchemaCompiler::compile_tags(const TagStyle& style, uint32_t* rule) {
  tags_ = &style;
  in_call_ = true;
  return define_rules(Mode::kTags, rule);
}

Status compile_tags(std::string_view text, const TagStyle& style, Network& network,
                    SchemaWork& work, uint32_t* rule) {
  Json json(network.allocator());
  MOE_TRY(json.parse(text).with_context("JSON schema"));
  return SchemaCompiler(json, network, work).compile_tags(style, rule);
}

}  // namespace moe::grammar
