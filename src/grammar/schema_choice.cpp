// SPDX-License-Identifier: MIT
// Choices: anyOf and oneOf, conditions, and the ways in which a value can fail to satisfy a schema.
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr size_t kMaxOptions = 300;  // of oneOf, each compared with each other
constexpr size_t kMaxOverlaps = 20;  // other options of oneOf that may hold with one

}  // namespace

Status Parts::copy(const Parts& from, size_t without) {
  clear();
  for (size_t i = 0; i < from.size(); ++i) {
    if (i != without) MOE_TRY(push(from[i]));
  }
  mode = from.mode;
  reader = from.reader;
  return {};
}

// The member's name of which a part speaks.
std::string_view SchemaCompiler::name_of(uint32_t node) const {
  return json_.kind(json_.parent(node)) == Json::kArray ? json_.text(node) : json_.name(node);
}

// The options of the first part that is a choice; negations last, when most is known of the rest.
Status SchemaCompiler::split(const Parts& parts, uint32_t* out, bool* is_choice) {
  enum Form : uint8_t { kAnyOf, kOneOf, kDependency, kIf, kFailure, kForms };
  size_t first[kForms];
  std::fill(std::begin(first), std::end(first), parts.size());
  for (size_t i = parts.size(); i-- > 0;) {
    const Part& p = parts[i];
    const auto open = [&](std::string_view keyword, uint32_t done) {
      return (p.done & done) == 0 && get(p, keyword) != Json::kNone;
    };
    if (open("anyOf"sv, Part::kAnyOf)) first[kAnyOf] = i;
    if (open("oneOf"sv, Part::kOneOf)) first[kOneOf] = i;
    if (open("if"sv, Part::kIf)) first[kIf] = i;
    if (p.kind == Part::kDepends) first[kDependency] = i;
    if (p.kind == Part::kFails) first[kFailure] = i;
  }
  Array<uint32_t> targets(allocator());
  const size_t form = static_cast<size_t>(
      std::find_if(std::begin(first), std::end(first), [&](size_t i) { return i < parts.size(); }) -
      std::begin(first));
  *is_choice = form < kForms;
  if (!*is_choice) return {};
  const size_t i = first[form];
  switch (form) {
    case kAnyOf:
      MOE_TRY(split_list(parts, i, "anyOf", targets));
      break;
    case kOneOf:
      MOE_TRY(split_list(parts, i, "oneOf", targets));
      break;
    case kDependency:
      MOE_TRY(split_dependency(parts, i, targets));
      break;
    case kIf:
      MOE_TRY(split_if(parts, i, targets));
      break;
    default:
      MOE_TRY(split_failure(parts, i, targets));
      break;
  }
  *out = network_.split(targets.span());
  return {};
}

// Adds the values that satisfy `rest` and `more`, which takes its place at `at`.
Status SchemaCompiler::add_option(const Parts& rest, size_t at, std::span<const Part> more,
                                  Array<uint32_t>& targets) {
  Parts option(allocator());
  MOE_TRY(option.append(rest.data(), rest.size()));
  option.mode = rest.mode;
  option.reader = rest.reader;
  for (const Part& p : more) {
    const size_t n = option.size();
    MOE_TRY(add_part(option, at, p.node, p.kind));
    at += option.size() - n;
  }
  MOE_TRY(spend(100));
  MOE_TRY(flatten(option));  // a type beside $ref may not count
  uint32_t types = 0;
  MOE_TRY(types_of(option, &types));
  if (types == 0) return {};
  uint32_t rule = 0;
  MOE_TRY(rule_of(option, &rule));
  return targets.push(network_.call(rule, kEnd));
}

Status SchemaCompiler::split_list(const Parts& parts, size_t i, std::string_view keyword,
                                  Array<uint32_t>& targets) {
  const bool one = keyword == "oneOf"sv;
  const uint32_t list = get(parts[i], keyword);
  if (json_.kind(list) != Json::kArray || json_.size(list) == 0) {
    return malformed(list, "expected an array of schemas");
  }
  if (one && json_.size(list) > kMaxOptions) return unsupported(list, "more than 300 options");
  Parts rest(allocator());
  MOE_TRY(rest.copy(parts));
  rest[i].done |= one ? Part::kOneOf : Part::kAnyOf;
  const size_t at = stands_first(list) ? i : i + 1;
  for (uint32_t c = json_.first(list); c != Json::kNone; c = json_.next(c)) {
    Array<Part> more(allocator());
    MOE_TRY(more.push({.node = c}));
    for (uint32_t d = json_.first(list); one && d != Json::kNone; d = json_.next(d)) {
      bool apart = d == c;
      if (!apart) MOE_TRY(disjoint(d, c, 0, &apart));
      if (apart) continue;
      MOE_TRY(more.push({.node = d, .kind = Part::kFails}));
      if (more.size() > kMaxOverlaps) {
        return unsupported(c, "oneOf: more than 20 other options may hold with this one");
      }
    }
    MOE_TRY(add_option(rest, at, more.span(), targets));
  }
  return {};
}

Status SchemaCompiler::split_if(const Parts& parts, size_t i, Array<uint32_t>& targets) {
  Parts rest(allocator());
  MOE_TRY(rest.copy(parts));
  rest[i].done |= Part::kIf;
  for (const bool holds : {true, false}) {
    const uint32_t then = get(parts[i], holds ? "then" : "else");
    const Part both[] = {
        {.node = get(parts[i], "if"sv), .kind = holds ? Part::kSatisfies : Part::kFails},
        {.node = then}};
    MOE_TRY(add_option(rest, i + 1, {both, then != Json::kNone ? size_t{2} : size_t{1}}, targets));
  }
  return {};
}

Status SchemaCompiler::split_dependency(const Parts& parts, size_t i, Array<uint32_t>& targets) {
  const uint32_t node = parts[i].node;
  Parts rest(allocator());
  MOE_TRY(rest.copy(parts, i));
  const Part lacks = {.node = node, .kind = Part::kLacks};
  MOE_TRY(add_option(rest, i, {&lacks, 1}, targets));
  Array<Part> more(allocator());
  MOE_TRY(more.push({.node = node, .kind = Part::kHas}));
  if (json_.kind(node) != Json::kArray) {
    MOE_TRY(more.push({.node = node}));
  } else {
    for (uint32_t c = json_.first(node); c != Json::kNone; c = json_.next(c)) {
      if (json_.kind(c) != Json::kString) return malformed(c, "expected a name");
      MOE_TRY(more.push({.node = c, .kind = Part::kHas}));
    }
  }
  return add_option(rest, i, more.span(), targets);
}

// A value fails to satisfy a schema if it fails to satisfy one of its keywords.
Status SchemaCompiler::split_failure(const Parts& parts, size_t i, Array<uint32_t>& targets) {
  const uint32_t node = parts[i].node;
  Parts rest(allocator());
  MOE_TRY(rest.copy(parts, i));
  if (json_.kind(node) == Json::kFalse) return add_option(rest, i, {}, targets);
  const bool ref = ref_alone_ && json_.find(node, "$ref"sv) != Json::kNone;
  for (uint32_t c = json_.first(node); c != Json::kNone; c = json_.next(c)) {
    if (!ref || json_.name(c) == "$ref"sv) MOE_TRY(split_keyword(rest, i, c, targets));
  }
  return {};
}

// Adds the ways to fail at one keyword.
Status SchemaCompiler::split_keyword(const Parts& rest, size_t at, uint32_t keyword,
                                     Array<uint32_t>& targets) {
  const std::string_view name = json_.name(keyword);
  for (const std::string_view list : {"allOf"sv, "anyOf"sv, "oneOf"sv, "required"sv, "enum"sv}) {
    if (name == list && json_.kind(keyword) != Json::kArray)
      return malformed(keyword, "expected an array");
  }
  for (const std::string_view object :
       {"properties"sv, "dependentRequired"sv, "dependentSchemas"sv, "dependencies"sv}) {
    if (name == object && json_.kind(keyword) != Json::kObject)
      return malformed(keyword, "expected an object");
  }
  Array<Part> more(allocator());
  const auto add = [&](std::initializer_list<Part> parts) {
    return add_option(rest, at, {parts.begin(), parts.size()}, targets);
  };
  const auto each_child = [&](auto&& f) -> Status {
    for (uint32_t c = json_.first(keyword); c != Json::kNone; c = json_.next(c)) MOE_TRY(f(c));
    return {};
  };
  if (name == "$ref"sv) {
    uint32_t to = 0;
    MOE_TRY(resolve(keyword, &to));
    return add({{.node = to, .kind = Part::kFails}});
  }
  if (name == "not"sv) return add({{.node = keyword}});
  if (name == "allOf"sv) {
    return each_child([&](uint32_t c) { return add({{.node = c, .kind = Part::kFails}}); });
  }
  if (name == "anyOf"sv || name == "oneOf"sv) {
    MOE_TRY(each_child([&](uint32_t c) { return more.push({.node = c, .kind = Part::kFails}); }));
    MOE_TRY(add_option(rest, at, more.span(), targets));
    if (name == "anyOf"sv) return {};
    if (json_.size(keyword) > kMaxOverlaps)
      return unsupported(keyword, "a negation of more than 20 options");
    return each_child([&](uint32_t c) -> Status {  // or two hold
      for (uint32_t d = json_.next(c); d != Json::kNone; d = json_.next(d)) {
        MOE_TRY(add({{.node = c}, {.node = d}}));
      }
      return {};
    });
  }
  if (name == "if"sv) {
    const uint32_t schema = json_.parent(keyword);
    for (const bool holds : {true, false}) {
      const uint32_t then = json_.find(schema, holds ? "then" : "else");
      if (then == Json::kNone) continue;
      MOE_TRY(add({{.node = keyword, .kind = holds ? Part::kSatisfies : Part::kFails},
                   {.node = then, .kind = Part::kFails}}));
    }
    return {};
  }
  if (name == "properties"sv) {
    return each_child([&](uint32_t c) {
      return json_.kind(c) == Json::kTrue ? Status() : add({{.node = c, .kind = Part::kHasWrong}});
    });
  }
  if (name == "required"sv) {
    return each_child([&](uint32_t c) {
      if (json_.kind(c) != Json::kString) return malformed(c, "expected a name");
      return add({{.node = keyword, .kind = Part::kOfType}, {.node = c, .kind = Part::kLacks}});
    });
  }
  if (name == "dependentRequired"sv || name == "dependentSchemas"sv || name == "dependencies"sv) {
    return each_child([&](uint32_t member) -> Status {
      const Part has = {.node = member, .kind = Part::kHas};
      if (json_.kind(member) != Json::kArray)
        return add({has, {.node = member, .kind = Part::kFails}});
      for (uint32_t c = json_.first(member); c != Json::kNone; c = json_.next(c)) {
        if (json_.kind(c) != Json::kString) return malformed(c, "expected a name");
        MOE_TRY(add({has, {.node = c, .kind = Part::kLacks}}));
      }
      return {};
    });
  }
  if (name == "additionalProperties"sv) return split_additional(rest, at, keyword, targets);
  const bool none =
      name == "then"sv || name == "else"sv ||
      (name == "uniqueItems"sv && json_.kind(keyword) != Json::kTrue) ||
      (name.starts_with("exclusive"sv) && json_.is_bool(keyword));  // says nothing alone
  if (none || !restricts(name)) return {};
  return add({{.node = keyword, .kind = Part::kBreaks}});
}

// Another member than those that the schema names: which ones there can be is known if the rest has
// a list of them.
Status SchemaCompiler::split_additional(const Parts& rest, size_t at, uint32_t keyword,
                                        Array<uint32_t>& targets) {
  const Json::Kind kind = json_.kind(keyword);
  if (kind == Json::kTrue || (kind == Json::kObject && json_.size(keyword) == 0)) return {};
  const uint32_t schema = json_.parent(keyword);
  const Part* closed = nullptr;
  for (const Part& p : rest) {
    const uint32_t others = get(p, "additionalProperties"sv);
    const bool none = others != Json::kNone && json_.kind(others) == Json::kFalse;
    if (none && get(p, "patternProperties"sv) == Json::kNone) closed = &p;
  }
  const bool patterns = json_.find(schema, "patternProperties"sv) != Json::kNone;
  if (kind != Json::kFalse || closed == nullptr || patterns) {
    const Part breaks = {.node = keyword, .kind = Part::kBreaks};
    return add_option(rest, at, {&breaks, 1}, targets);
  }
  const uint32_t own = json_.find(schema, "properties"sv);
  const uint32_t names = get(*closed, "properties"sv);
  if (names == Json::kNone) return {};
  for (uint32_t c = json_.first(names); c != Json::kNone; c = json_.next(c)) {
    if (own != Json::kNone && json_.find(own, json_.name(c)) != Json::kNone) continue;
    const Part has = {.node = c, .kind = Part::kHas};
    MOE_TRY(add_option(rest, at, {&has, 1}, targets));
  }
  return {};
}

// Whether two schemas certainly have no value in common.
Status SchemaCompiler::disjoint(uint32_t a, uint32_t b, uint32_t depth, bool* out) {
  *out = false;
  if (depth > 4) return {};
  MOE_TRY(spend(100));
  Parts x(allocator());
  Parts y(allocator());
  MOE_TRY(add_part(x, 0, a));
  MOE_TRY(add_part(y, 0, b));
  MOE_TRY(flatten(x));
  MOE_TRY(flatten(y));
  // A choice is apart from another schema if all its options are.
  for (const auto& [list, other] : {std::pair{&x, b}, std::pair{&y, a}}) {
    for (const Part& p : *list) {
      for (const std::string_view keyword : {"anyOf"sv, "oneOf"sv}) {
        const uint32_t options = get(p, keyword);
        if (options == Json::kNone) continue;
        bool all = true;
        for (uint32_t c = json_.first(options); c != Json::kNone && all; c = json_.next(c)) {
          MOE_TRY(disjoint(c, other, depth + 1, &all));
        }
        *out = *out || all;
      }
    }
  }
  if (*out) return {};
  uint32_t types = 0;
  uint32_t others = 0;
  MOE_TRY(types_of(x, &types));
  MOE_TRY(types_of(y, &others));
  const auto number = uint32_t{kTypeInteger | kTypeFraction};
  const auto type_of_value = [&](uint32_t value) {
    const uint32_t type = type_of(value);
    return (type & number) != 0 ? number : type;  // 2.0 is an integer
  };
  const auto narrow = [&](const Parts& list, uint32_t* mask) {
    for (const Part& p : list) {
      const uint32_t only = get(p, "const"sv);
      if (only != Json::kNone) *mask &= type_of_value(only);
      const uint32_t values = get(p, "enum"sv);
      if (values == Json::kNone) continue;
      uint32_t any = 0;
      for (uint32_t c = json_.first(values); c != Json::kNone; c = json_.next(c)) {
        any |= type_of_value(c);
      }
      *mask &= any;
    }
  };
  narrow(x, &types);
  narrow(y, &others);
  const uint32_t common = types & others;
  *out = common == 0;
  if (*out) return {};
  MOE_TRY(disjoint_values(x, y, out));
  if (*out) return {};
  if (common == kTypeString) {
    Automaton p(allocator());
    Automaton q(allocator());
    bool any_p = false;
    bool any_q = false;
    MOE_TRY(string_set(x, p, &any_p, Texts::kAll));
    MOE_TRY(string_set(y, q, &any_q, Texts::kAll));
    if (any_p || any_q) return {};
    Automaton both(allocator());
    MOE_TRY(both.combine(p, q, Automaton::Op::kAnd));
    *out = both.empty();
    return {};
  }
  if (common != kTypeObject) return {};
  // A property that one requires: the other forbids it, or requires it with another value.
  for (const auto& [list, other] : {std::pair{&x, &y}, std::pair{&y, &x}}) {
    for (const Part& p : *list) {
      const uint32_t required = get(p, "required"sv);
      if (required == Json::kNone) continue;
      for (uint32_t c = json_.first(required); c != Json::kNone; c = json_.next(c)) {
        if (json_.kind(c) != Json::kString) continue;
        Parts mine(allocator());
        Parts theirs(allocator());
        MOE_TRY(value_of(*list, json_.text(c), mine));
        MOE_TRY(value_of(*other, json_.text(c), theirs));
        for (const Part& q : theirs) {
          if (json_.kind(q.node) == Json::kFalse) *out = true;
          for (const Part& m : mine) {
            if (!*out) MOE_TRY(disjoint(m.node, q.node, depth + 1, out));
          }
        }
        if (*out) return {};
      }
    }
  }
  return {};
}

// Whether the values that one of the lists has are not allowed by the other.
Status SchemaCompiler::disjoint_values(const Parts& a, const Parts& b, bool* out) {
  for (const auto& [list, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    for (const Part& p : *list) {
      const uint32_t only = get(p, "const"sv);
      const uint32_t several = get(p, "enum"sv);
      if (only == Json::kNone && several == Json::kNone) continue;
      bool none = true;
      for (uint32_t c = only != Json::kNone ? only : json_.first(several); c != Json::kNone && none;
           c = only != Json::kNone ? Json::kNone : json_.next(c)) {
        bool admitted = false;
        unsure_ = false;
        const Status status = admits(c, *other, &admitted);
        // A keyword that cannot be judged proves nothing.
        if (!status.ok() && status.code() != MOE_ERR_UNSUPPORTED) return status;
        none = status.ok() && !admitted && !unsure_;
      }
      if (none) {
        *out = true;
        return {};
      }
    }
  }
  return {};
}

}  // namespace moe::grammar
