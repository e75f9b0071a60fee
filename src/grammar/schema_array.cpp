// SPDX-License-Identifier: MIT
// Arrays.
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr uint32_t kMaxPrefix = 10000;
constexpr uint32_t kMaxCounted = 200;  // items beside `contains`

}  // namespace

// A list for the first items, and a schema for the rest.
SchemaCompiler::Items SchemaCompiler::items_of(const Part& part) const {
  const Items items = {get(part, "prefixItems"sv), get(part, "items"sv)};
  if (items.rest == Json::kNone || json_.kind(items.rest) != Json::kArray) return items;
  return {items.rest, get(part, "additionalItems"sv)};
}

// The schemas that an item must satisfy.
Status SchemaCompiler::item_schemas(const Parts& parts, uint32_t index, Parts& out) {
  MOE_TRY(spend(index / 2));  // a list is walked to the place
  for (const Part& p : parts) {
    const Items items = items_of(p);
    const bool first = items.prefix != Json::kNone && index < json_.size(items.prefix);
    const uint32_t schema = first ? json_.element(items.prefix, index) : items.rest;
    if (schema != Json::kNone) MOE_TRY(add_part(out, out.size(), schema));
    if (breaks(p, "contains"sv)) MOE_TRY(add_part(out, out.size(), p.node, Part::kFails));
  }
  return {};
}

// Items of which one at least is `some`. *first: reads the first item and all behind it.
Status SchemaCompiler::some_items(const Parts& parts, uint32_t min, uint32_t max, uint32_t n_prefix,
                                  const Part& some, uint32_t close, uint32_t* first) {
  *first = kNever;
  const uint32_t cap = max != kNoLimit ? max : std::max({min, n_prefix, 1U});
  if (cap == 0) return {};
  if (cap > kMaxCounted) {
    return unsupported(some.node, "contains, or a negation of items, beside more than 200 items");
  }
  // By whether `some` was there: what follows the items so far, and reads an item and what follows.
  uint32_t after[2] = {kNever, close};
  const bool loops = max == kNoLimit;
  if (loops) {
    for (uint32_t& a : after) a = network_.open_split();
  }
  uint32_t item[2] = {kNever, kNever};
  for (uint32_t c = loops ? cap + 1 : cap; c-- > 0;) {
    Parts schemas(allocator());
    uint32_t any = 0;
    uint32_t right = 0;
    MOE_TRY(item_schemas(parts, c, schemas));
    MOE_TRY(rule_of(schemas, &any));
    MOE_TRY(add_part(schemas, schemas.size(), some.node, some.kind));
    MOE_TRY(rule_of(schemas, &right));
    item[0] = network_.optional(network_.call(any, after[0]), network_.call(right, after[1]));
    item[1] = network_.call(any, after[1]);
    for (const size_t found : {size_t{0}, size_t{1}}) {
      const uint32_t more = network_.byte(',', ',', space(item[found]));
      const bool may_close = found == 1 && c >= min;
      const uint32_t targets[] = {more, may_close ? close : kNever};
      if (loops && c == cap) {
        network_.close_split(after[found], targets);
      } else {
        after[found] = network_.split(targets);
      }
    }
  }
  *first = item[0];
  return network_.status();
}

Status SchemaCompiler::array(const Parts& parts, uint32_t next, uint32_t* out) {
  uint32_t min = 0;
  uint32_t max = 0;
  MOE_TRY(least_and_most(parts, "minItems", "maxItems", &min, &max));
  MOE_TRY(each(parts, "uniqueItems"sv, [&](uint32_t k) -> Status {
    if (json_.kind(k) != Json::kTrue || max <= 1) return {};
    return unsupported(k, "this keyword is not supported");
  }));
  uint32_t n_prefix = 0;
  Part some = {.node = Json::kNone};  // what an item must be
  for (const Part& p : parts) {
    const Items items = items_of(p);
    if (items.prefix != Json::kNone) {
      if (json_.kind(items.prefix) != Json::kArray) {
        return malformed(items.prefix, "expected an array of schemas");
      }
      n_prefix = std::max(n_prefix, json_.size(items.prefix));
      if (n_prefix > kMaxPrefix) return unsupported(items.prefix, "more than 10000 items");
    }
    Part found = {.node = get(p, "contains"sv)};
    if (p.kind == Part::kBreaks) {
      const bool all = breaks(p, "items"sv) && json_.kind(p.node) != Json::kArray &&
                       json_.find(json_.parent(p.node), "prefixItems"sv) == Json::kNone;
      if (all) found = {.node = p.node, .kind = Part::kFails};
      if (!all && !breaks(p, "minItems"sv) && !breaks(p, "maxItems"sv) &&
          !breaks(p, "contains"sv) && !breaks(p, "type"sv) && !breaks(p, "enum"sv) &&
          !breaks(p, "const"sv)) {
        return unsupported(p.node, "a negation of this keyword is not supported");
      }
    }
    if (found.node == Json::kNone) continue;
    if (some.node != Json::kNone) {
      return unsupported(found.node, "contains, or a negation of items, twice for one array");
    }
    some = found;
  }
  if (min > max) {
    *out = kNever;
    return {};
  }
  n_prefix = std::min(n_prefix, max);
  const uint32_t close = space(network_.byte(']', ']', next));
  uint32_t item = kNever;  // reads an item and all behind it
  if (some.node != Json::kNone) {
    MOE_TRY(some_items(parts, min, max, n_prefix, some, close, &item));
    *out = network_.byte('[', '[', space(item));
    return {};
  }
  const auto rule_at = [&](uint32_t i, uint32_t* rule) -> Status {
    Parts schemas(allocator());
    MOE_TRY(item_schemas(parts, i, schemas));
    return rule_of(schemas, rule);
  };
  uint32_t rule = 0;
  MOE_TRY(rule_at(n_prefix, &rule));
  const uint32_t more = network_.add_rule();
  network_.define(more, network_.byte(',', ',', space(network_.call(rule, kEnd))));
  const uint32_t done = std::max(n_prefix, 1U);  // items before the repetition
  const uint32_t left = max == kNoLimit ? kNoLimit : max - std::min(max, done);
  uint32_t after = network_.repeat(more, min > done ? min - done : 0, left, close);
  if (n_prefix == 0) item = max == 0 ? kNever : network_.call(rule, after);
  for (uint32_t i = n_prefix; i-- > 0;) {
    MOE_TRY(rule_at(i, &rule));
    item = network_.call(rule, after);
    after = network_.byte(',', ',', space(item));
    if (i >= min) after = network_.optional(after, close);
  }
  uint32_t inside = space(item);
  if (min == 0) inside = network_.optional(inside, close);
  *out = network_.byte('[', '[', inside);
  return {};
}

}  // namespace moe::grammar
