// SPDX-License-Identifier: MIT
// Lists of schemas: references, allOf, choices, types.
#include "src/grammar/schema_compiler.h"

#include "src/grammar/cursor.h"

namespace moe::grammar {
namespace {

constexpr size_t kMaxParts = 500;     // schemas that one value must satisfy
constexpr uint32_t kMaxNaming = 100;  // schemas that name each other for one value
constexpr size_t kMaxRules = 100000;
constexpr uint64_t kMaxKeyBytes = 16 << 20;
constexpr uint32_t kKindShift = 16;                // in a key
constexpr uint64_t kMaxSteps = 200 * 1000 * 1000;  // seconds

// Bits that tell what was checked of a node of the text.
enum Checked : uint8_t { kKeywords = 1, kEntered = 2, kAcyclic = 4, kNamed = 8, kData = 16 };

/// Keywords whose members are schemas by name (kNamed), and those whose value is no schema (kData).
constexpr std::string_view kHaveNamed[] = {"properties",  "patternProperties", "$defs",
                                           "definitions", "dependentSchemas",  "dependencies"};
constexpr std::string_view kHaveData[] = {"const", "enum", "default", "examples"};

/// Keywords that restrict values.
constexpr std::string_view kSupported[] = {"$ref",
                                           "allOf",
                                           "anyOf",
                                           "oneOf",
                                           "not",
                                           "if",
                                           "then",
                                           "else",
                                           "dependentRequired",
                                           "dependentSchemas",
                                           "dependencies",
                                           "type",
                                           "enum",
                                           "const",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "properties",
                                           "required",
                                           "additionalProperties",
                                           "patternProperties",
                                           "propertyNames",
                                           "minProperties",
                                           "maxProperties",
                                           "items",
                                           "prefixItems",
                                           "additionalItems",
                                           "minItems",
                                           "maxItems",
                                           "contains",
                                           "uniqueItems"};
constexpr std::string_view kRefused[] = {"minContains",      "maxContains", "unevaluatedProperties",
                                         "unevaluatedItems", "$dynamicRef", "$recursiveRef",
                                         "extends",          "disallow",    "divisibleBy"};

bool among(std::span<const std::string_view> list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Whether one letter more, less or different, or another case, makes the name the keyword.
bool mistyped(std::string_view name, std::string_view keyword) {
  if (name.size() > keyword.size()) std::swap(name, keyword);
  if (name.size() + 1 < keyword.size() || name.size() < 4) return false;
  size_t same = 0;
  while (same < name.size() && ascii_lower(name[same]) == ascii_lower(keyword[same])) ++same;
  const size_t skip = keyword.size() - name.size();
  const std::string_view x = slice(name, same + (skip == 0 ? 1 : 0));
  const std::string_view y = slice(keyword, same + 1);
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](char a, char b) { return ascii_lower(a) == ascii_lower(b); });
}

uint32_t type_named(std::string_view name) {
  static constexpr std::pair<std::string_view, uint32_t> kTypes[] = {
      {"null", kTypeNull},       {"boolean", kTypeBoolean},
      {"integer", kTypeInteger}, {"number", kTypeInteger | kTypeFraction},
      {"string", kTypeString},   {"array", kTypeArray},
      {"object", kTypeObject}};
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  return 0;
}

// The types that a keyword restricts.
uint32_t types_of_keyword(std::string_view name) {
  static constexpr std::pair<std::string_view, uint32_t> kTypes[] = {
      {"minimum", kTypeInteger | kTypeFraction},
      {"maximum", kTypeInteger | kTypeFraction},
      {"exclusiveMinimum", kTypeInteger | kTypeFraction},
      {"exclusiveMaximum", kTypeInteger | kTypeFraction},
      {"multipleOf", kTypeInteger | kTypeFraction},
      {"minLength", kTypeString},
      {"maxLength", kTypeString},
      {"pattern", kTypeString},
      {"format", kTypeString},
      {"items", kTypeArray},
      {"prefixItems", kTypeArray},
      {"additionalItems", kTypeArray},
      {"minItems", kTypeArray},
      {"maxItems", kTypeArray},
      {"uniqueItems", kTypeArray},
      {"contains", kTypeArray},
      {"type", kTypeAll},
      {"enum", kTypeAll},
      {"const", kTypeAll}};
  for (const auto& [known, types] : kTypes) {
    if (known == name) return types;
  }
  return kTypeObject;
}

}  // namespace

bool restricts(std::string_view keyword) { return among(kSupported, keyword); }

SchemaCompiler::SchemaCompiler(const Json& json, Network& network, SchemaWork& work)
    : json_(json),
      network_(network),
      work_(work),
      keys_(json.allocator()),
      rules_(json.allocator()),
      checked_(json.allocator()),
      resources_(json.allocator()),
      bare_names_(json.allocator()),
      patterns_(json.allocator()) {
  std::fill(std::begin(shared_), std::end(shared_), ~0U);
}

Status SchemaCompiler::error(moe_status code, uint32_t node, const char* what) const {
  String path(allocator());
  MOE_TRY(json_.path(node, path));
  const std::string_view shown = slice(path.view(), 0, 200);
  return Status::error(code, "JSON schema: %.*s: %s", static_cast<int>(shown.size()), shown.data(),
                       what);
}

// Bounds the time of schemas that are small and take long.
Status SchemaCompiler::spend(uint64_t steps) const {
  work_.n_steps += steps;
  if (work_.n_steps <= kMaxSteps) return {};
  return Status::error(MOE_ERR_TOO_LONG, "JSON schema: it takes too long to compile");
}

Status SchemaCompiler::at(uint32_t node, const Status& status) const {
  if (status.ok()) return {};
  return error(status.code(), node, status.text());
}

Status SchemaCompiler::count(uint32_t value, uint32_t* out) const {
  const std::string_view text = json_.text(value);
  if (json_.kind(value) != Json::kNumber) return malformed(value, "expected a number");
  uint64_t n = 0;
  size_t i = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    n = std::min<uint64_t>(n * 10 + static_cast<uint64_t>(text[i] - '0'), kNoLimit - 1);
  }
  while (i < text.size() && (text[i] == '.' || text[i] == '0')) ++i;
  if (i < text.size()) return malformed(value, "expected a whole number from 0 on");
  *out = static_cast<uint32_t>(n);
  return {};
}

Status SchemaCompiler::least_and_most(const Parts& parts, std::string_view least,
                                      std::string_view most, uint32_t* min, uint32_t* max) const {
  *min = 0;
  *max = kNoLimit;
  uint32_t n = 0;
  const auto raise = [&](uint32_t v) -> Status {
    MOE_TRY(count(v, &n));
    *min = std::max(*min, n);
    return {};
  };
  const auto lower = [&](uint32_t v) -> Status {
    MOE_TRY(count(v, &n));
    *max = std::min(*max, n);
    return {};
  };
  MOE_TRY(each(parts, least, raise));
  MOE_TRY(each(parts, most, lower));
  for (const Part& p : parts) {
    if (breaks(p, most)) {
      MOE_TRY(count(p.node, &n));
      *min = std::max(*min, n + 1);
    } else if (breaks(p, least)) {
      MOE_TRY(count(p.node, &n));
      if (n == 0) *min = kNoLimit;  // there is no such value
      *max = std::min(*max, std::max(n, 1U) - 1);
    }
  }
  return {};
}

// Every schema that is used is checked once.
Status SchemaCompiler::check_keywords(uint32_t node) {
  if ((checked_[node] & kKeywords) != 0) return {};
  MOE_TRY(check_cycles(node, 0));
  if (json_.kind(node) != Json::kObject && !json_.is_bool(node)) {
    return malformed(node, "expected a schema: an object, true or false");
  }
  const bool ref = ref_alone_ && json_.find(node, "$ref"sv) != Json::kNone;
  for (uint32_t c = json_.first(node); c != Json::kNone && !ref; c = json_.next(c)) {
    const std::string_view name = json_.name(c);
    if (restricts(name)) continue;
    if (among(kRefused, name)) return unsupported(c, "this keyword is not supported");
    // Other names restrict nothing, unless somebody mistyped one that does.
    for (const std::string_view keyword : kSupported) {
      if (name.starts_with("_"sv) || !mistyped(name, keyword)) continue;
      String what(allocator());
      MOE_TRY(what.append("not a keyword of JSON Schema; \""));
      MOE_TRY(what.append(keyword));
      MOE_TRY(what.append("\" is"));
      return unsupported(c, what.c_str());
    }
  }
  checked_[node] |= kKeywords;  // not if this fails: not every failure ends the compilation
  return {};
}

// A schema must not lead back to itself, but for parts of a value: nobody could say whether
// {"not": {"$ref": "#"}} holds.
Status SchemaCompiler::check_cycles(uint32_t node, uint32_t depth) {
  if (json_.kind(node) != Json::kObject || (checked_[node] & kAcyclic) != 0) return {};
  if ((checked_[node] & kEntered) != 0) return malformed(node, "it leads back to itself by $ref");
  if (depth == kMaxNaming) return unsupported(node, "more than 100 schemas that name each other");
  MOE_TRY(spend(10));
  checked_[node] |= kEntered;
  const Status status = check_named(node, depth + 1);
  checked_[node] ^= status.ok() ? uint8_t{kEntered | kAcyclic} : uint8_t{kEntered};
  return status;
}

Status SchemaCompiler::check_named(uint32_t node, uint32_t depth) {
  const uint32_t ref = json_.find(node, "$ref"sv);
  if (ref != Json::kNone) {
    uint32_t to = 0;
    MOE_TRY(resolve(ref, &to));
    MOE_TRY(check_cycles(to, depth));
    if (ref_alone_) return {};
  }
  for (uint32_t c = json_.first(node); c != Json::kNone; c = json_.next(c)) {
    const std::string_view name = json_.name(c);
    const bool branch = name == "then"sv || name == "else"sv;
    const bool one =
        name == "not"sv || name == "if"sv || (branch && json_.find(node, "if"sv) != Json::kNone);
    const bool several = name.ends_with("Of"sv) || name.starts_with("dependen"sv);
    if (one) MOE_TRY(check_cycles(c, depth));
    if (!several || !restricts(name)) continue;
    for (uint32_t d = json_.first(c); d != Json::kNone; d = json_.next(d)) {
      MOE_TRY(check_cycles(d, depth));
    }
  }
  return {};
}

// Whether the node is the value of a keyword of a schema.
bool SchemaCompiler::is_keyword(uint32_t node) const {
  const uint32_t up = json_.parent(node);
  return up != Json::kNone && json_.kind(up) == Json::kObject &&
         (checked_[up] & (kNamed | kData)) == 0;
}

// Finds out which nodes are schemas, and for each the schema with an $id that it is or is in, else
// the root: where references begin. A node comes before its parts.
Status SchemaCompiler::mark_places() {
  MOE_TRY(spend(json_.n_nodes()));
  MOE_TRY(resources_.resize(json_.n_nodes()));
  for (uint32_t i = 0; i < json_.n_nodes(); ++i) {
    const uint32_t up = json_.parent(i);
    if (up == Json::kNone) continue;
    const std::string_view name = json_.name(i);
    if ((checked_[up] & kData) != 0) checked_[i] |= kData;
    if (!is_keyword(i)) continue;
    if (among(kHaveNamed, name)) checked_[i] |= kNamed;
    if (among(kHaveData, name)) checked_[i] |= kData;
    const bool is_id = name == "$id"sv || (name == "id"sv && point_tells_);
    if (!is_id || json_.kind(i) != Json::kString || json_.text(i).starts_with("#"sv)) continue;
    const bool ignored = ref_alone_ && json_.find(up, "$ref"sv) != Json::kNone;
    if (!ignored) resources_[up] = up;
  }
  for (uint32_t i = 0; i < json_.n_nodes(); ++i) {
    const uint32_t up = json_.parent(i);
    if (up == Json::kNone) {
      resources_[i] = i;
    } else if (resources_[i] != i) {
      resources_[i] = resources_[up];
    }
  }
  return {};
}

// The schema whose $id is `name`, or which has it as an $anchor, best in the resource `from`;
// kNone.
Status SchemaCompiler::find_named(std::string_view name, bool anchor, uint32_t from,
                                  uint32_t* node) const {
  *node = Json::kNone;
  uint64_t work = 0;
  bool best = false;
  for (uint32_t i = 0; i < json_.n_nodes() && !best; ++i, ++work) {
    const std::string_view key = json_.name(i);
    const bool is_id = key == "$id"sv || key == "id"sv;
    if (!is_id && !(anchor && key == "$anchor"sv)) continue;
    if (json_.kind(i) != Json::kString || !is_keyword(i)) continue;
    const std::string_view text = json_.text(i);
    work += text.size();
    std::string_view found = text;
    if (is_id && anchor) found = slice(text, text.starts_with("#"sv) ? 1 : text.size());
    if (is_id && !anchor) found = slice(text, 0, text.find('#'));
    if (found != name) continue;
    best = !anchor || resources_[json_.parent(i)] == from;
    if (best || *node == Json::kNone) *node = json_.parent(i);
  }
  return spend(work);
}

// The node that a JSON pointer names, beginning at *node; or kNone.
Status SchemaCompiler::follow(std::string_view pointer, uint32_t* node) const {
  MOE_TRY(spend(pointer.size()));
  String step(allocator());
  while (!pointer.empty() && *node != Json::kNone) {
    pointer.remove_prefix(1);
    const size_t n = std::min(pointer.find('/'), pointer.size());
    MOE_TRY(unescape_pointer(slice(pointer, 0, n), step));
    pointer.remove_prefix(n);
    if (json_.kind(*node) != Json::kArray) {
      *node = json_.find(*node, step.view());
      continue;
    }
    Cursor in(step.view());
    uint32_t index = 0;
    const bool whole = in.take_number(&index) && in.at_end();
    MOE_TRY(spend(std::min(index, json_.size(*node))));
    *node = whole ? json_.element(*node, index) : Json::kNone;
  }
  return {};
}

// The schema that a $ref names, which must be in this text.
Status SchemaCompiler::resolve(uint32_t ref, uint32_t* node) const {
  if (json_.kind(ref) != Json::kString) return malformed(ref, "expected a string");
  const std::string_view to = json_.text(ref);
  const size_t mark = std::min(to.find('#'), to.size());
  uint32_t from = resources_[json_.parent(ref)];
  if (mark > 0) {
    MOE_TRY(find_named(slice(to, 0, mark), false, from, &from));
    if (from == Json::kNone) return unsupported(ref, "a schema outside of this one");
  }
  const std::string_view place = slice(to, mark + 1);
  *node = from;
  if (place.empty()) return {};
  if (!place.starts_with("/"sv)) {
    MOE_TRY(find_named(place, true, from, node));
  } else {
    MOE_TRY(follow(place, node));
    // Programs that write an $id everywhere still count from the root.
    if (*node == Json::kNone && from != json_.root()) {
      *node = json_.root();
      MOE_TRY(follow(place, node));
    }
  }
  return *node != Json::kNone ? Status() : error(MOE_ERR_NOT_FOUND, ref, "there is no such schema");
}

Status SchemaCompiler::add_part(Parts& parts, size_t at, uint32_t node, Part::Kind kind) {
  if (kind == Part::kSatisfies || kind == Part::kFails) {
    MOE_TRY(check_keywords(node));
    if (kind == Part::kSatisfies && json_.kind(node) == Json::kTrue) return {};
  }
  for (const Part& p : parts) {
    if (p.node == node && p.kind == kind) return {};
  }
  if (parts.size() == kMaxParts) {
    return unsupported(node, "a value would have to satisfy more than 500 schemas");
  }
  MOE_TRY(parts.push({.node = node, .kind = kind}));
  std::rotate(parts.begin() + at, parts.end() - 1, parts.end());
  return {};
}

// Whether what the keyword names comes before the schema's own properties: in the order of the
// text.
bool SchemaCompiler::stands_first(uint32_t keyword) const {
  return keyword < json_.find(json_.parent(keyword), "properties"sv);
}

// Adds what $ref and allOf name before or behind the schemas that name it, and what else is no
// choice.
Status SchemaCompiler::flatten(Parts& parts) {
  for (size_t i = 0; i < parts.size();) {
    const uint32_t node = parts[i].node;
    const uint32_t ref = get(parts[i], "$ref"sv);
    const uint32_t all = get(parts[i], "allOf"sv);
    if (ref != Json::kNone && (parts[i].done & Part::kRef) == 0) {
      parts[i].done |= Part::kRef;
      uint32_t to = 0;
      MOE_TRY(resolve(ref, &to));
      MOE_TRY(add_part(parts, stands_first(ref) ? i : i + 1, to));
      if (!ref_alone_) continue;
      size_t at = 0;
      while (parts[at].node != node || parts[at].kind != Part::kSatisfies) ++at;
      std::rotate(parts.begin() + at, parts.begin() + at + 1, parts.end());
      parts.pop();
      i = std::min(i, at);
    } else if (all != Json::kNone && (parts[i].done & Part::kAllOf) == 0) {
      parts[i].done |= Part::kAllOf;
      if (json_.kind(all) != Json::kArray) return malformed(all, "expected an array");
      size_t at = stands_first(all) ? i : i + 1;
      for (uint32_t c = json_.first(all); c != Json::kNone; c = json_.next(c)) {
        const size_t n = parts.size();
        MOE_TRY(add_part(parts, at, c));
        at += parts.size() - n;
      }
    } else {
      const Part part = parts[i];
      parts[i].done |= Part::kRest;
      ++i;
      if ((part.done & Part::kRest) != 0 || part.kind != Part::kSatisfies) continue;
      const uint32_t wrong = get(part, "not"sv);
      if (wrong != Json::kNone) MOE_TRY(add_part(parts, parts.size(), wrong, Part::kFails));
      for (const std::string_view name :
           {"dependentRequired"sv, "dependentSchemas"sv, "dependencies"sv}) {
        const uint32_t list = get(part, name);
        if (list == Json::kNone) continue;
        if (json_.kind(list) != Json::kObject) return malformed(list, "expected an object");
        for (uint32_t c = json_.first(list); c != Json::kNone; c = json_.next(c)) {
          MOE_TRY(add_part(parts, parts.size(), c, Part::kDepends));
        }
      }
    }
  }
  return {};
}

Status SchemaCompiler::rule_of(const Parts& given, uint32_t* rule) {
  Parts parts(allocator());
  parts.mode = given.mode;
  parts.reader = given.reader;
  for (const Part& p : given) {
    if (p.kind == Part::kSatisfies) MOE_TRY(check_keywords(p.node));
    if (p.kind != Part::kSatisfies || json_.kind(p.node) != Json::kTrue) MOE_TRY(parts.push(p));
  }
  MOE_TRY(flatten(parts));
  Array<uint32_t> key(allocator());
  MOE_TRY(key.push(static_cast<uint32_t>(parts.mode)));
  MOE_TRY(key.push(parts.reader));
  for (const Part& p : parts) {
    MOE_TRY(key.push(p.node));
    MOE_TRY(key.push(p.done | p.kind << kKindShift));
  }
  uint32_t id = 0;
  bool fresh = false;
  MOE_TRY(keys_.find(key.span(), &id, &fresh));
  if (fresh) {
    work_.n_key_bytes += key.size() * sizeof(key[0]);
    if (work_.n_key_bytes > kMaxKeyBytes) {
      return Status::error(MOE_ERR_TOO_LONG, "JSON schema: too many schemas hold together");
    }
    if (++work_.n_rules > kMaxRules) {
      return Status::error(MOE_ERR_TOO_LONG, "JSON schema: more than %zu rules", kMaxRules);
    }
    MOE_TRY(rules_.push(network_.add_rule()));
  }
  *rule = rules_[id];
  return network_.status();
}

Status SchemaCompiler::define_rule(uint32_t id) {
  Parts parts(allocator());
  const std::span<const uint32_t> key = keys_[id];
  parts.mode = static_cast<Mode>(key[0]);
  parts.reader = key[1];
  for (size_t i = 2; i < key.size(); i += 2) {
    const auto kind = static_cast<Part::Kind>(key[i + 1] >> kKindShift);
    const uint32_t done = key[i + 1] & ((uint32_t{1} << kKindShift) - 1);
    MOE_TRY(parts.push({.node = key[i], .done = done, .kind = kind}));
  }
  uint32_t start = kNever;
  bool never = false;
  for (const Part& p : parts) {
    never = never || (p.kind == Part::kSatisfies && json_.kind(p.node) == Json::kFalse);
  }
  if (!never) {
    bool is_choice = false;
    if (!listed(parts)) MOE_TRY(split(parts, &start, &is_choice));
    if (!is_choice) MOE_TRY(leaf(parts, &start));
  }
  network_.define(rules_[id], start);
  return network_.status();
}

bool SchemaCompiler::listed(const Parts& parts) const {
  return std::any_of(parts.begin(), parts.end(), [&](const Part& p) {
    return get(p, "enum"sv) != Json::kNone || get(p, "const"sv) != Json::kNone;
  });
}

// The types that the value of the keyword `type` names.
Status SchemaCompiler::types_named(uint32_t value, uint32_t* types) const {
  *types = 0;
  const bool list = json_.kind(value) == Json::kArray;
  for (uint32_t c = list ? json_.first(value) : value; c != Json::kNone;
       c = list ? json_.next(c) : Json::kNone) {
    const uint32_t type = json_.kind(c) == Json::kString ? type_named(json_.text(c)) : 0;
    if (type == 0) return malformed(c, "expected the name of a type");
    *types |= type;
  }
  return {};
}

uint32_t SchemaCompiler::type_of(uint32_t value) const {
  static constexpr uint32_t kTypes[] = {kTypeNull,   kTypeBoolean, kTypeBoolean, kTypeInteger,
                                        kTypeString, kTypeArray,   kTypeObject};
  const bool point = json_.kind(value) == Json::kNumber &&
                     json_.text(value).find_first_of(".eE") != std::string_view::npos;
  const bool fraction = point && (point_tells_ || !is_integer(value));
  return fraction ? uint32_t{kTypeFraction} : kTypes[json_.kind(value)];
}

Status SchemaCompiler::types_of(const Parts& parts, uint32_t* types) const {
  *types = kTypeAll;
  uint32_t named = 0;
  for (const Part& p : parts) {
    if (p.kind == Part::kHas || p.kind == Part::kHasWrong) *types &= kTypeObject;
    if (p.kind == Part::kOfType || p.kind == Part::kBreaks) {
      *types &= types_of_keyword(json_.name(p.node));
    }
    if (breaks(p, "type"sv)) {
      MOE_TRY(types_named(p.node, &named));
      *types &= ~named;
    }
    if (p.kind != Part::kSatisfies) continue;
    if (json_.kind(p.node) == Json::kFalse) *types = 0;
    const uint32_t value = get(p, "type"sv);
    if (value == Json::kNone) continue;
    MOE_TRY(types_named(value, &named));
    // OpenAPI 3.0's way to write ["null", ...].
    const uint32_t nullable = get(p, "nullable"sv);
    if (nullable != Json::kNone && json_.kind(nullable) == Json::kTrue) {
      return unsupported(nullable, "not a keyword of JSON Schema: add \"null\" to the type");
    }
    *types &= named;
  }
  return {};
}

// A list without references and choices: a choice of types.
Status SchemaCompiler::leaf(const Parts& parts, uint32_t* out) {
  uint32_t types = 0;
  MOE_TRY(types_of(parts, &types));
  if (parts.mode == Mode::kPlainText) return plain_text(parts, types, out);
  if (parts.mode == Mode::kWithout) types &= ~uint32_t{kTypeString};
  if (parts.mode == Mode::kObject || parts.mode == Mode::kTags) types &= kTypeObject;
  if (listed(parts)) {
    if (parts.mode != Mode::kTags) return values(parts, types, out);
    return unsupported(parts[0].node, "enum or const of whole arguments");
  }
  uint32_t without = 0;  // kinds of JSON that are not allowed
  for (const Part& p : parts) {
    const bool list = breaks(p, "enum"sv);
    if (!list && !breaks(p, "const"sv)) continue;
    for (uint32_t c = list ? json_.first(p.node) : p.node; c != Json::kNone;
         c = list ? json_.next(c) : Json::kNone) {
      without |= 1U << json_.kind(c);
      if ((types & type_of(c) & (kTypeArray | kTypeObject)) == 0) continue;
      return unsupported(p.node, "a negation of an array or object");
    }
  }
  if (parts.mode == Mode::kTags) {
    *out = kNever;
    return types == 0 ? Status() : tags(parts, kEnd, out);
  }
  Array<uint32_t> targets(allocator());
  uint32_t node = kNever;
  if ((types & kTypeObject) != 0) {
    MOE_TRY(object(parts, kEnd, &node));
    MOE_TRY(targets.push(node));
  }
  if ((types & kTypeArray) != 0) {
    MOE_TRY(array(parts, kEnd, &node));
    MOE_TRY(targets.push(node));
  }
  if ((types & kTypeString) != 0) {
    MOE_TRY(string(parts, kEnd, &node));
    MOE_TRY(targets.push(node));
  }
  if ((types & (kTypeInteger | kTypeFraction)) != 0) {
    MOE_TRY(number(parts, types, kEnd, &node));
    MOE_TRY(targets.push(node));
  }
  if ((types & kTypeBoolean) != 0) {
    const auto may_be = [&](Json::Kind kind) { return (without >> kind & 1) == 0; };
    if (may_be(Json::kTrue)) MOE_TRY(targets.push(network_.literal("true", kEnd)));
    if (may_be(Json::kFalse)) MOE_TRY(targets.push(network_.literal("false", kEnd)));
  }
  if ((types & kTypeNull) != 0 && (without >> Json::kNull & 1) == 0) {
    MOE_TRY(targets.push(network_.literal("null", kEnd)));
    if (notation_ != nullptr) MOE_TRY(targets.push(network_.literal("None", kEnd)));
  }
  *out = network_.split(targets.span());
  return {};
}

// *rule: that of the whole schema.
Status SchemaCompiler::define_rules(Mode mode, uint32_t* rule) {
  MOE_TRY(checked_.resize(json_.n_nodes()));
  const uint32_t draft = json_.find(json_.root(), "$schema"sv);
  if (draft != Json::kNone && json_.kind(draft) == Json::kString) {
    for (const std::string_view old : {"draft-03"sv, "draft-04"sv, "draft-06"sv, "draft-07"sv}) {
      if (json_.text(draft).find(old) == std::string_view::npos) continue;
      ref_alone_ = true;
      point_tells_ = old < "draft-06";
    }
  }
  MOE_TRY(mark_places());
  Parts parts(allocator());
  parts.mode = mode;
  MOE_TRY(parts.push({.node = json_.root()}));
  MOE_TRY(rule_of(parts, rule));
  for (uint32_t i = 0; i < rules_.size(); ++i) MOE_TRY(define_rule(i));
  return network_.status();
}

Status SchemaCompiler::compile(uint32_t* root) {
  uint32_t rule = 0;
  MOE_TRY(define_rules(Mode::kAny, &rule));
  *root = network_.add_rule();
  network_.define(*root, space(network_.call(rule, kEnd)));
  return network_.status();
}

Status SchemaCompiler::compile_object(const Notation* notation, uint32_t* rule) {
  notation_ = notation;
  in_call_ = true;
  return define_rules(Mode::kObject, rule);
}

Status compile_object(std::string_view text, const Notation* notation, Network& network,
                      SchemaWork& work, uint32_t* rule) {
  Json json(network.allocator());
  MOE_TRY(json.parse(text).with_context("JSON schema"));
  return SchemaCompiler(json, network, work).compile_object(notation, rule);
}

Status compile_schema(std::string_view text, Network& network, uint32_t* root) {
  Json json(network.allocator());
  MOE_TRY(json.parse(text).with_context("JSON schema"));
  SchemaWork work;
  return SchemaCompiler(json, network, work).compile(root);
}

}  // namespace moe::grammar
