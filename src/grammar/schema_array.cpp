// SPDX-License-Identifier: MIT
// Arrays.
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr uint32_t kMaxPrefix = 10000;

}  // namespace

Status SchemaCompiler::array(const Parts& parts, uint32_t next, uint32_t* out) {
  uint32_t min = 0;
  uint32_t max = 0;
  MOE_TRY(least_and_most(parts, "minItems", "maxItems", &min, &max));
  MOE_TRY(each(parts, "uniqueItems", [&](uint32_t k) -> Status {
    if (json_.kind(k) != Json::kTrue || max <= 1) return {};
    return unsupported(k, "this keyword is not supported");
  }));
  // The schemas by place: a list for the first ones, and one for the rest.
  const auto lists = [&](const Part& p, uint32_t* prefix, uint32_t* rest) {
    *prefix = get(p, "prefixItems");
    *rest = get(p, "items");
    if (*rest == Json::kNone || json_.kind(*rest) != Json::kArray) return;
    *prefix = *rest;
    *rest = get(p, "additionalItems");
  };
  uint32_t n_prefix = 0;
  for (const Part& p : parts) {
    uint32_t prefix = 0;
    uint32_t rest = 0;
    lists(p, &prefix, &rest);
    if (prefix == Json::kNone) continue;
    if (json_.kind(prefix) != Json::kArray)
      return malformed(prefix, "expected an array of schemas");
    n_prefix = std::max(n_prefix, json_.size(prefix));
    if (n_prefix > kMaxPrefix) return unsupported(prefix, "more than 10000 items");
  }
  const auto rule_at = [&](uint32_t i, uint32_t* rule) -> Status {
    Parts item(allocator());
    for (const Part& p : parts) {
      uint32_t prefix = 0;
      uint32_t rest = 0;
      lists(p, &prefix, &rest);
      const bool first = prefix != Json::kNone && i < json_.size(prefix);
      const uint32_t schema = first ? json_.element(prefix, i) : rest;
      if (schema != Json::kNone) MOE_TRY(add_part(item, item.size(), schema));
    }
    return rule_of(item, rule);
  };
  if (min > max) {
    *out = kNever;
    return {};
  }
  n_prefix = std::min(n_prefix, max);
  uint32_t rule = 0;
  MOE_TRY(rule_at(n_prefix, &rule));
  const uint32_t close = space(network_.byte(']', ']', next));
  const uint32_t more = network_.add_rule();
  network_.define(more, network_.byte(',', ',', space(network_.call(rule, kEnd))));
  const uint32_t done = std::max(n_prefix, 1U);  // items before the repetition
  const uint32_t left = max == kNoLimit ? kNoLimit : max - std::min(max, done);
  uint32_t after = network_.repeat(more, min > done ? min - done : 0, left, close);
  uint32_t item = kNever;  // reads an item and all behind it
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
