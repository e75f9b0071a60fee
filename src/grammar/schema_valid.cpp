// SPDX-License-Identifier: MIT
// Whether a value that a schema lists (enum, const) satisfies the rest of it.
#include <algorithm>

#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr uint32_t kMaxNesting = 60;  // of schemas in each other, also by reference

uint32_t n_characters(std::string_view text) {
  return static_cast<uint32_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

bool SchemaCompiler::equal(uint32_t a, uint32_t b) const {
  work_.n_steps += 30;  // who compares many values asks spend()
  if (json_.kind(a) != json_.kind(b) || json_.size(a) != json_.size(b)) return false;
  if (json_.kind(a) == Json::kNumber) return same_number(a, b);
  if (json_.text(a) != json_.text(b)) return false;
  const bool object = json_.kind(a) == Json::kObject;
  uint32_t d = json_.first(b);
  for (uint32_t c = json_.first(a); c != Json::kNone; c = json_.next(c)) {
    const uint32_t other = object ? json_.find(b, json_.name(c)) : d;
    if (other == Json::kNone || !equal(c, other)) return false;
    d = json_.next(d);
  }
  return true;
}

// Whether the value is one of those of the keyword enum or const.
bool SchemaCompiler::one_of(uint32_t value, uint32_t keyword) const {
  if (value == keyword || json_.parent(value) == keyword) return true;
  if (json_.name(keyword) == "const"sv) return equal(value, keyword);
  for (uint32_t c = json_.first(keyword); c != Json::kNone; c = json_.next(c)) {
    if (equal(c, value)) return true;
  }
  return false;
}

Status SchemaCompiler::admits(uint32_t value, const Parts& parts, bool* out) {
  *out = true;
  for (const Part& p : parts) {
    if (*out) MOE_TRY(admits(value, p, 0, out));
  }
  return {};
}

Status SchemaCompiler::admits(uint32_t value, const Part& part, uint32_t depth, bool* out) {
  const uint32_t node = part.node;
  const auto member = [&] {
    return json_.kind(value) == Json::kObject ? json_.find(value, name_of(node)) : Json::kNone;
  };
  switch (part.kind) {
    case Part::kSatisfies:
      return valid(value, node, depth, out);
    case Part::kFails:
      return surely_fails(value, node, depth, out);
    case Part::kHas:
      *out = member() != Json::kNone;
      return {};
    case Part::kLacks:
      *out = member() == Json::kNone;
      return {};
    case Part::kHasWrong:
      *out = member() != Json::kNone;
      return *out ? surely_fails(member(), node, depth, out) : Status();
    case Part::kDepends:
      *out = true;
      if (member() == Json::kNone) return {};
      if (json_.kind(node) != Json::kArray) return valid(value, node, depth, out);
      for (uint32_t c = json_.first(node); c != Json::kNone; c = json_.next(c)) {
        *out = *out && json_.find(value, json_.text(c)) != Json::kNone;
      }
      return {};
    case Part::kOfType:
    case Part::kBreaks:
      break;
  }
  Parts one(allocator());
  MOE_TRY(one.push(part));
  uint32_t types = 0;
  MOE_TRY(types_of(one, &types));
  uint32_t own = type_of(value);
  if (own == kTypeFraction && is_integer(value)) own |= kTypeInteger;  // 2.0
  *out = (types & own) == own;
  if (!*out || part.kind == Part::kOfType) return {};
  const std::string_view name = json_.name(node);
  if (name == "type"sv) return {};
  if (name == "enum"sv || name == "const"sv) {
    *out = !one_of(value, node);
    return {};
  }
  if (json_.kind(value) == Json::kNumber) return number_admits(value, one, out);
  if (json_.kind(value) == Json::kString) return text_admits(value, one, out);
  const bool array = json_.kind(value) == Json::kArray;
  if (name != (array ? "minItems" : "minProperties") &&
      name != (array ? "maxItems" : "maxProperties")) {
    return unsupported(node, "a negation of this keyword beside enum or const");
  }
  return size_admits(value, one, out);
}

// Its number of items or members.
Status SchemaCompiler::size_admits(uint32_t value, const Parts& parts, bool* out) const {
  const bool array = json_.kind(value) == Json::kArray;
  uint32_t min = 0;
  uint32_t max = 0;
  MOE_TRY(least_and_most(parts, array ? "minItems" : "minProperties",
                         array ? "maxItems" : "maxProperties", &min, &max));
  *out = json_.size(value) >= min && json_.size(value) <= max;
  return {};
}

Status SchemaCompiler::text_admits(uint32_t value, const Parts& parts, bool* out) {
  const std::string_view text = json_.text(value);
  const uint32_t length = n_characters(text);
  *out = false;
  Lengths limits;
  MOE_TRY(lengths(parts, &limits));
  if (length < limits.min || length > limits.max) return {};
  Automaton texts(allocator());
  bool any = false;
  MOE_TRY(texts_of(parts, Texts::kListed, &limits, texts, &any));
  *out = (any || texts.contains(text)) && length <= limits.max;
  if (*out) return {};
  Automaton more(allocator());
  MOE_TRY(texts_of(parts, Texts::kAll, &limits, more, &any));
  unsure_ = unsure_ || any || more.contains(text);
  return {};
}

Status SchemaCompiler::surely_fails(uint32_t value, uint32_t schema, uint32_t depth, bool* out) {
  const bool before = unsure_;
  unsure_ = false;
  bool satisfies = false;
  MOE_TRY(valid(value, schema, depth, &satisfies));
  if (!satisfies && unsure_) {
    return unsupported(schema, "cannot tell whether a value of enum or const satisfies this");
  }
  unsure_ = before;
  *out = !satisfies;
  return {};
}

Status SchemaCompiler::valid(uint32_t value, uint32_t schema, uint32_t depth, bool* out) {
  MOE_TRY(check_keywords(schema));
  MOE_TRY(spend(100));
  *out = json_.kind(schema) != Json::kFalse;
  if (json_.is_bool(schema)) return {};
  if (depth > kMaxNesting) return unsupported(schema, "nested too deeply beside enum or const");
  const uint32_t ref = json_.find(schema, "$ref"sv);
  if (ref != Json::kNone) {
    uint32_t to = 0;
    MOE_TRY(resolve(ref, &to));
    MOE_TRY(valid(value, to, depth + 1, out));
    if (!*out || ref_alone_) return {};
  }
  Parts one(allocator());
  MOE_TRY(one.push({.node = schema}));
  uint32_t types = 0;
  MOE_TRY(types_of(one, &types));
  *out = (types & type_of(value)) != 0;
  if (!*out) {
    unsure_ = unsure_ || ((types & kTypeInteger) != 0 && is_integer(value));  // 2.0
    return {};
  }
  for (const std::string_view name : {"enum"sv, "const"sv}) {
    const uint32_t list = json_.find(schema, name);
    if (list != Json::kNone) *out = *out && one_of(value, list);
  }
  for (uint32_t c = json_.first(schema); c != Json::kNone && *out; c = json_.next(c)) {
    MOE_TRY(valid_choice(value, c, depth + 1, out));
  }
  if (!*out) return {};
  switch (json_.kind(value)) {
    case Json::kNumber:
      return number_admits(value, one, out);
    case Json::kString:
      return text_admits(value, one, out);
    case Json::kArray:
      return valid_array(value, one, depth + 1, out);
    case Json::kObject:
      return valid_object(value, one, depth + 1, out);
    default:
      return {};
  }
}

// A keyword that combines schemas; *out stays true for any other one.
Status SchemaCompiler::valid_choice(uint32_t value, uint32_t keyword, uint32_t depth, bool* out) {
  const std::string_view name = json_.name(keyword);
  if (name == "allOf"sv) {
    for (uint32_t c = json_.first(keyword); c != Json::kNone && *out; c = json_.next(c)) {
      MOE_TRY(valid(value, c, depth, out));
    }
  } else if (name == "anyOf"sv) {
    *out = false;
    for (uint32_t c = json_.first(keyword); c != Json::kNone && !*out; c = json_.next(c)) {
      MOE_TRY(valid(value, c, depth, out));
    }
  } else if (name == "oneOf"sv) {
    uint32_t n = 0;
    for (uint32_t c = json_.first(keyword); c != Json::kNone; c = json_.next(c)) {
      bool fails = false;
      MOE_TRY(surely_fails(value, c, depth, &fails));
      n += fails ? 0 : 1;
    }
    *out = n == 1;
  } else if (name == "not"sv) {
    return surely_fails(value, keyword, depth, out);
  } else if (name == "if"sv) {
    bool fails = false;
    MOE_TRY(surely_fails(value, keyword, depth, &fails));
    const uint32_t then = json_.find(json_.parent(keyword), fails ? "else" : "then");
    if (then != Json::kNone) return valid(value, then, depth, out);
  } else if (name == "dependencies"sv || name == "dependentRequired"sv ||
             name == "dependentSchemas"sv) {
    for (uint32_t c = json_.first(keyword); c != Json::kNone && *out; c = json_.next(c)) {
      MOE_TRY(admits(value, {.node = c, .kind = Part::kDepends}, depth, out));
    }
  }
  return {};
}

Status SchemaCompiler::valid_object(uint32_t value, const Parts& schema, uint32_t depth,
                                    bool* out) {
  MOE_TRY(size_admits(value, schema, out));
  MOE_TRY(each(schema, "required"sv, [&](uint32_t list) -> Status {
    if (json_.kind(list) != Json::kArray) return malformed(list, "expected an array of names");
    for (uint32_t c = json_.first(list); c != Json::kNone; c = json_.next(c)) {
      *out = *out && json_.find(value, json_.text(c)) != Json::kNone;
    }
    return {};
  }));
  Automaton allowed(allocator());
  bool any = false;
  MOE_TRY(names(schema, allowed, &any));
  for (uint32_t m = json_.first(value); m != Json::kNone && *out; m = json_.next(m)) {
    Parts schemas(allocator());
    MOE_TRY(value_of(schema, json_.name(m), schemas));
    for (const Part& p : schemas) {
      if (*out) MOE_TRY(admits(m, p, depth, out));
    }
    if (any || allowed.contains(json_.name(m))) continue;
    *out = false;
    unsure_ = true;  // it may be a format
  }
  return {};
}

Status SchemaCompiler::valid_array(uint32_t value, const Parts& schema, uint32_t depth, bool* out) {
  MOE_TRY(size_admits(value, schema, out));
  uint32_t index = 0;
  for (uint32_t c = json_.first(value); c != Json::kNone && *out; c = json_.next(c)) {
    Parts schemas(allocator());
    MOE_TRY(item_schemas(schema, index++, schemas));
    for (const Part& p : schemas) {
      if (*out) MOE_TRY(admits(c, p, depth, out));
    }
  }
  const uint32_t wanted = get(schema[0], "contains"sv);
  bool found = wanted == Json::kNone;
  for (uint32_t c = json_.first(value); c != Json::kNone && !found; c = json_.next(c)) {
    MOE_TRY(valid(c, wanted, depth, &found));
  }
  *out = *out && found;
  const uint32_t unique = get(schema[0], "uniqueItems"sv);
  if (unique == Json::kNone || json_.kind(unique) != Json::kTrue) return {};
  for (uint32_t c = json_.first(value); c != Json::kNone && *out; c = json_.next(c)) {
    MOE_TRY(spend(0));
    for (uint32_t d = json_.next(c); d != Json::kNone; d = json_.next(d)) {
      *out = *out && !equal(c, d);
    }
  }
  return {};
}

}  // namespace moe::grammar
