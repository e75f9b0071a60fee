// SPDX-License-Identifier: MIT
// Objects: properties in the order of the schema, then all others.
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr size_t kMaxPatterns = 6;     // of patternProperties: each set of them is a case
constexpr size_t kMaxPlaces = 200000;  // properties times counts

}  // namespace

/// Properties without a name in the schema.
struct SchemaCompiler::Others {
  explicit Others(const Allocator& a) : names(a) {}
  Automaton names;
  bool any = false;  // all names; `names` is empty
  uint32_t rule = 0;
};

// The automaton of the name of a member of patternProperties.
Status SchemaCompiler::pattern_of(uint32_t schema, const Automaton** out) {
  for (const Pattern& p : patterns_) {
    if (p.node != schema) continue;
    *out = &p.automaton;
    return {};
  }
  Expressions e(allocator());
  uint32_t expr = 0;
  MOE_TRY(at(schema, parse_regex(json_.name(schema), e, &expr)));
  Automaton automaton(allocator());
  MOE_TRY(at(schema, automaton.from_expression(e, expr, Match::kAnywhere)));
  MOE_TRY(patterns_.push({schema, std::move(automaton)}));
  *out = &patterns_.back().automaton;
  return {};
}

// The schemas that the value of a property must satisfy.
Status SchemaCompiler::value_of(const Parts& parts, std::string_view name, Parts& out) {
  MOE_TRY(spend(10 * (parts.size() + 1)));
  for (const Part& p : parts) {
    if (p.kind == Part::kHasWrong && json_.name(p.node) == name) {
      MOE_TRY(add_part(out, out.size(), p.node, Part::kFails));
    }
    bool known = false;
    const uint32_t named = get(p, "properties"sv);
    if (named != Json::kNone) {
      const uint32_t schema = json_.find(named, name);
      known = schema != Json::kNone;
      if (known) MOE_TRY(add_part(out, out.size(), schema));
    }
    const uint32_t patterns = get(p, "patternProperties"sv);
    for (uint32_t c = patterns == Json::kNone ? Json::kNone : json_.first(patterns);
         c != Json::kNone; c = json_.next(c)) {
      const Automaton* pattern = nullptr;
      MOE_TRY(pattern_of(c, &pattern));
      if (!pattern->contains(name)) continue;
      known = true;
      MOE_TRY(add_part(out, out.size(), c));
    }
    const uint32_t more = get(p, "additionalProperties"sv);
    if (!known && more != Json::kNone) MOE_TRY(add_part(out, out.size(), more));
  }
  return {};
}

// The names that propertyNames allows; *any: all.
Status SchemaCompiler::names(const Parts& parts, Automaton& out, bool* any) {
  Parts schemas(allocator());
  MOE_TRY(each(parts, "propertyNames"sv, [&](uint32_t k) { return add_part(schemas, 0, k); }));
  MOE_TRY(flatten(schemas));
  for (const Part& p : schemas) {
    if (p.kind == Part::kFails) return unsupported(p.node, "inside propertyNames");
    for (const std::string_view keyword : {"anyOf"sv, "oneOf"sv, "if"sv, "enum"sv, "const"sv}) {
      const uint32_t k = get(p, keyword);
      if (k != Json::kNone) return unsupported(k, "inside propertyNames");
    }
  }
  uint32_t types = 0;
  MOE_TRY(types_of(schemas, &types));
  *any = false;
  if ((types & kTypeString) == 0) return {};
  if (!schemas.empty()) return string_set(schemas, out, any);
  *any = true;
  return {};
}

Status SchemaCompiler::properties(const Parts& parts, Array<Property>& out) {
  for (const Part& p : parts) {
    if (p.kind != Part::kBreaks || breaks(p, "minProperties"sv) || breaks(p, "maxProperties"sv) ||
        breaks(p, "type"sv) || breaks(p, "enum"sv) || breaks(p, "const"sv)) {
      continue;
    }
    return unsupported(p.node, "a negation of this keyword is not supported");
  }
  Names numbers(allocator());
  const auto add = [&](std::string_view name, bool required) -> Status {
    uint32_t id = 0;
    bool fresh = false;
    MOE_TRY(numbers.add(name, &id, &fresh));
    if (fresh) MOE_TRY(out.push({.name = name}));
    out[id].required = out[id].required || required;
    return {};
  };
  const auto add_named = [&](uint32_t list) -> Status {
    if (json_.kind(list) != Json::kObject) return malformed(list, "expected an object of schemas");
    for (uint32_t c = json_.first(list); c != Json::kNone; c = json_.next(c)) {
      MOE_TRY(add(json_.name(c), false));
    }
    return {};
  };
  const auto add_required = [&](uint32_t list) -> Status {
    if (json_.kind(list) != Json::kArray) return malformed(list, "expected an array of names");
    for (uint32_t c = json_.first(list); c != Json::kNone; c = json_.next(c)) {
      if (json_.kind(c) != Json::kString) return malformed(c, "expected a name");
      MOE_TRY(add(json_.text(c), true));
    }
    return {};
  };
  MOE_TRY(each(parts, "properties"sv, add_named));
  MOE_TRY(each(parts, "required"sv, add_required));
  for (const Part& p : parts) {
    const bool has = p.kind == Part::kHas || p.kind == Part::kHasWrong;
    if (has || p.kind == Part::kLacks) MOE_TRY(add(name_of(p.node), has));
  }
  Automaton allowed(allocator());
  bool any = false;
  MOE_TRY(names(parts, allowed, &any));
  for (Property& p : out) p.allowed = any || allowed.contains(p.name);
  for (const Part& p : parts) {
    if (p.kind != Part::kLacks) continue;
    uint32_t id = 0;
    bool fresh = false;
    MOE_TRY(numbers.add(name_of(p.node), &id, &fresh));
    out[id].allowed = false;
  }
  return {};
}

// The names that no schema names, by the patterns that they match.
Status SchemaCompiler::others(const Parts& parts, const Array<Property>& named,
                              Array<Others>& out) {
  Array<uint32_t> patterns(allocator());
  const auto add_patterns = [&](uint32_t list) -> Status {
    if (json_.kind(list) != Json::kObject) return malformed(list, "expected an object of schemas");
    for (uint32_t c = json_.first(list); c != Json::kNone; c = json_.next(c)) {
      MOE_TRY(patterns.push(c));
      if (patterns.size() > kMaxPatterns) return unsupported(c, "more than 6 patterns");
    }
    return {};
  };
  MOE_TRY(each(parts, "patternProperties"sv, add_patterns));
  Array<std::string_view> taken(allocator());
  for (const Property& p : named) MOE_TRY(taken.push(p.name));
  Automaton allowed(allocator());
  bool any_allowed = false;
  MOE_TRY(names(parts, allowed, &any_allowed));
  for (uint32_t set = 0; set < 1U << patterns.size(); ++set) {
    Parts value(allocator());
    bool never = false;
    for (const Part& p : parts) {
      bool matched = false;
      const uint32_t list = get(p, "patternProperties"sv);
      for (size_t i = 0; i < patterns.size(); ++i) {
        if ((set >> i & 1) == 0 || json_.parent(patterns[i]) != list) continue;
        matched = true;
        MOE_TRY(add_part(value, value.size(), patterns[i]));
      }
      const uint32_t more = get(p, "additionalProperties"sv);
      if (!matched && more != Json::kNone) MOE_TRY(add_part(value, value.size(), more));
    }
    for (const Part& p : value) never = never || json_.kind(p.node) == Json::kFalse;
    if (never) continue;
    Others o(allocator());
    o.any = any_allowed && taken.empty() && patterns.empty();
    if (!o.any) {
      MOE_TRY(at(parts[0].node, o.names.from_all_but(taken.span())));
      const auto keep = [&](const Automaton& with, Automaton::Op op) -> Status {
        Automaton kept(allocator());
        MOE_TRY(at(parts[0].node, kept.combine(o.names, with, op)));
        MOE_TRY(spend(kept.n_cells()));
        o.names = std::move(kept);
        return {};
      };
      for (size_t i = 0; i < patterns.size(); ++i) {
        const Automaton* pattern = nullptr;
        MOE_TRY(pattern_of(patterns[i], &pattern));
        MOE_TRY(
            keep(*pattern, (set >> i & 1) != 0 ? Automaton::Op::kAnd : Automaton::Op::kWithout));
      }
      if (!any_allowed) MOE_TRY(keep(allowed, Automaton::Op::kAnd));
      if (notation_ != nullptr) MOE_TRY(keep(bare_names(), Automaton::Op::kAnd));
      if (o.names.empty()) continue;
    }
    MOE_TRY(rule_of(value, &o.rule));
    MOE_TRY(out.push(std::move(o)));
  }
  return {};
}

Status SchemaCompiler::object(const Parts& parts, uint32_t next, uint32_t* out) {
  uint32_t min = 0;
  uint32_t max = 0;
  MOE_TRY(least_and_most(parts, "minProperties", "maxProperties", &min, &max));
  Array<Property> named(allocator());
  Array<Others> rest(allocator());
  MOE_TRY(properties(parts, named));
  if (notation_ != nullptr) sort_names(named);
  for (Property& p : named) {
    Parts value(allocator());
    MOE_TRY(value_of(parts, p.name, value));
    MOE_TRY(rule_of(value, &p.rule));
    if (!p.allowed) p.rule = network_.add_rule();  // never
  }
  MOE_TRY(others(parts, named, rest));
  uint32_t n_required = 0;
  for (const Property& p : named) n_required += p.required ? 1 : 0;
  if (min <= n_required) min = 0;
  if (min > 1 && !rest.empty()) {
    // A name could be there twice.
    return unsupported(parts[0].node,
                       "minProperties above 1 and above the number of required ones, "
                       "with names that the schema does not list");
  }
  if (rest.empty() && max >= named.size()) max = kNoLimit;
  const size_t n = named.size();
  const uint32_t cap = max != kNoLimit ? max : min;  // counts above are not told apart
  if ((n + 1) * (size_t{cap} + 1) > kMaxPlaces) {
    return unsupported(parts[0].node, "too many properties for minProperties or maxProperties");
  }
  if (min > max) {
    *out = kNever;
    return {};
  }
  const uint32_t close = space(network_.byte('}', '}', next));
  const auto key = [&](uint32_t text_and_quote) { return network_.byte('"', '"', text_and_quote); };
  // By the number of members so far: member[c] reads a member and what follows, after[c] what
  // follows a member; both for the properties from a place in the schema on, here its end.
  Array<uint32_t> member(allocator());
  Array<uint32_t> after(allocator());
  const auto what_follows = [&](uint32_t c, uint32_t first, bool may_close) {
    const uint32_t more = network_.byte(',', ',', space(first));
    return may_close && c >= min ? network_.optional(more, close) : more;
  };
  for (uint32_t c = 0; c <= cap; ++c) MOE_TRY(member.push(network_.open_split()));
  for (uint32_t c = 0; c <= cap; ++c) MOE_TRY(after.push(what_follows(c, member[c], true)));
  for (uint32_t c = 0; c <= cap && c < max; ++c) {
    Array<uint32_t> targets(allocator());
    for (const Others& o : rest) {
      const uint32_t then = after[std::min(c + 1, cap)];
      const uint32_t value = network_.byte(':', ':', space(network_.call(o.rule, then)));
      if (notation_ != nullptr) {
        const Automaton& names = o.any ? bare_names() : o.names;
        MOE_TRY(targets.push(names.build(network_, Spelling::kPlain, value)));
        continue;
      }
      MOE_TRY(targets.push(
          o.any ? network_.call(shared(kAnyString), value)
                : key(o.names.build(network_, Spelling::kJson, network_.byte('"', '"', value)))));
    }
    network_.close_split(member[c], targets.span());
  }
  bool may_close = true;
  for (size_t i = n; i-- > 0;) {
    const Property& p = named[i];
    for (uint32_t c = 0; c <= cap; ++c) {
      uint32_t first = kNever;
      if (c < max) {
        const uint32_t then = after[std::min(c + 1, cap)];
        first = member_name(p.name, space(network_.call(p.rule, then)));
      }
      if (!p.required) first = network_.optional(first, member[c]);
      member[c] = first;
    }
    may_close = may_close && !p.required;
    for (uint32_t c = 0; c <= cap; ++c) after[c] = what_follows(c, member[c], may_close);
    MOE_TRY(network_.status());
  }
  uint32_t inside = space(member[0]);
  if (may_close && min == 0) inside = network_.optional(inside, close);
  *out = network_.byte('{', '{', inside);
  return {};
}

}  // namespace moe::grammar
