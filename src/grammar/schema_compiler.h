// SPDX-License-Identifier: MIT
#pragma once
// Turns a JSON Schema into rules. Private to this folder.
//
// A rule belongs to a list of schemas that a value must all satisfy: $ref and allOf add to the
// list, anyOf and oneOf become a choice of lists, and equal lists are the same rule, so that
// recursive schemas end.

#include "src/grammar/automaton.h"
#include "src/grammar/json.h"
#include "src/grammar/keys.h"
#include "src/grammar/schema.h"

namespace moe::grammar {

using std::string_view_literals::operator""sv;  // whose length needs no strlen

/// A part of what a value must satisfy: mostly a schema (a node of the JSON text), of which some
/// keywords have been dealt with. What a choice or a negation leaves of one is of another kind.
struct Part {
  enum Kind : uint32_t {
    kSatisfies,  // the schema `node`
    kFails,      // does not satisfy the schema `node`
    kOfType,     // is of the types that the keyword `node` speaks of
    kBreaks,     // the same, and does not satisfy that keyword
    kHas,        // is an object with the member that `node` names: a string, or a member itself
    kHasWrong,   // the same, whose value does not satisfy the schema `node`
    kLacks,      // is no object with such a member
    kDepends,    // an object with such a member satisfies `node`: a schema, or a list of names
  };
  /// Keywords that have become parts of their own. kRest means `not`, and what depends on a member.
  enum Done : uint32_t { kRef = 1, kAllOf = 2, kAnyOf = 4, kOneOf = 8, kRest = 16, kIf = 32 };
  uint32_t node = 0;
  uint32_t done = 0;  // bits of Done
  Kind kind = kSatisfies;
};

/// The form of a value's text, which besides satisfies its schemas.
enum class Mode : uint8_t {
  kAny,
  kObject,     // an object
  kTags,       // an object whose members stand in tags
  kWithout,    // no string: a value in a tag ...
  kPlainText,  // ... or a string without quotes and escapes
};

/// A list of schemas that a value must all satisfy.
struct Parts : Array<Part> {
  using Array<Part>::Array;
  Mode mode = Mode::kAny;
  uint32_t reader = 0;  // of kPlainText: the types that it must not be read as (TagStyle::types)

  /// Makes this a copy of all of them, or of all but the one at `without`.
  Status copy(const Parts& from, size_t without = ~size_t{0});
};

/// Whether a keyword restricts values.
bool restricts(std::string_view keyword);

/// Types of values, as bits.
enum Type : uint32_t {
  kTypeNull = 1,
  kTypeBoolean = 2,
  kTypeInteger = 4,
  kTypeFraction = 8,  // numbers that need not be integers
  kTypeString = 16,
  kTypeArray = 32,
  kTypeObject = 64,
  kTypeAll = 127,
};

/// Lengths of strings, in characters.
struct Lengths {
  uint32_t min = 0;
  uint32_t max = kNoLimit;
};

/// Texts that stand for those that have a format. The first three surely have it.
enum class Texts : uint8_t {
  kAlone,    // are written if no other keyword restricts them
  kWritten,  // are written if one does
  kListed,   // may be values of `enum` and `const`
  kAll,      // are all that may have it
};

class SchemaCompiler final {
 public:
  SchemaCompiler(const Json& json, Network& network, SchemaWork& work);
  Status compile(uint32_t* root);
  /// *rule: objects that satisfy the schema, without white space before them.
  Status compile_object(const Notation* notation, uint32_t* rule);
  /// The same, their members in tags.
  Status compile_tags(const TagStyle& style, uint32_t* rule);

 private:
  // schema_compiler.cpp: lists of schemas, choices.
  Status rule_of(const Parts& parts, uint32_t* rule);
  Status define_rule(uint32_t rule);
  Status define_rules(Mode mode, uint32_t* rule);
  bool stands_first(uint32_t keyword) const;
  Status flatten(Parts& parts);
  Status add_part(Parts& parts, size_t at, uint32_t node, Part::Kind kind = Part::kSatisfies);
  Status leaf(const Parts& parts, uint32_t* out);
  Status types_of(const Parts& parts, uint32_t* types) const;
  Status types_named(uint32_t value, uint32_t* types) const;
  uint32_t type_of(uint32_t value) const;
  Status resolve(uint32_t ref, uint32_t* node) const;
  Status find_named(std::string_view name, bool anchor, uint32_t from, uint32_t* node) const;
  Status follow(std::string_view pointer, uint32_t* node) const;
  bool is_keyword(uint32_t node) const;
  Status mark_places();
  Status spend(uint64_t steps) const;
  Status check_keywords(uint32_t node);
  Status check_cycles(uint32_t node, uint32_t depth);
  Status check_named(uint32_t node, uint32_t depth);
  bool listed(const Parts& parts) const;

  // schema_choice.cpp: choices, and what is left of a schema that a value must not satisfy.
  Status split(const Parts& parts, uint32_t* out, bool* is_choice);
  Status split_list(const Parts& parts, size_t i, std::string_view keyword,
                    Array<uint32_t>& targets);
  Status split_if(const Parts& parts, size_t i, Array<uint32_t>& targets);
  Status split_dependency(const Parts& parts, size_t i, Array<uint32_t>& targets);
  Status split_failure(const Parts& parts, size_t i, Array<uint32_t>& targets);
  Status split_keyword(const Parts& rest, size_t at, uint32_t keyword, Array<uint32_t>& targets);
  Status split_additional(const Parts& rest, size_t at, uint32_t keyword, Array<uint32_t>& targets);
  Status add_option(const Parts& rest, size_t at, std::span<const Part> more,
                    Array<uint32_t>& targets);
  std::string_view name_of(uint32_t node) const;
  Status disjoint(uint32_t a, uint32_t b, uint32_t depth, bool* out);
  Status disjoint_values(const Parts& a, const Parts& b, bool* out);

  // schema_value.cpp: fixed values, and any value.
  Status values(const Parts& parts, uint32_t types, uint32_t* out);
  template <class F>
  Status each_value(const Parts& parts, uint32_t types, F&& f);
  uint32_t write(uint32_t value, uint32_t next);
  uint32_t space(uint32_t next);
  enum Shared : uint8_t { kAnyString, kAnyChar, kIndent, kAnyNumber, kAnyInteger, kShared };
  uint32_t shared(Shared what);

  // schema_valid.cpp: whether a value that the schema lists satisfies the rest of it.
  Status admits(uint32_t value, const Parts& parts, bool* out);
  Status admits(uint32_t value, const Part& part, uint32_t depth, bool* out);
  Status surely_fails(uint32_t value, uint32_t schema, uint32_t depth, bool* out);
  Status valid(uint32_t value, uint32_t schema, uint32_t depth, bool* out);
  Status valid_choice(uint32_t value, uint32_t keyword, uint32_t depth, bool* out);
  Status valid_object(uint32_t value, const Parts& schema, uint32_t depth, bool* out);
  Status valid_array(uint32_t value, const Parts& schema, uint32_t depth, bool* out);
  Status size_admits(uint32_t value, const Parts& parts, bool* out) const;
  Status text_admits(uint32_t value, const Parts& parts, bool* out);
  bool one_of(uint32_t value, uint32_t keyword) const;
  bool equal(uint32_t a, uint32_t b) const;

  // schema_number.cpp
  struct Range;
  Status range(const Parts& parts, Range& out) const;
  Status number(const Parts& parts, uint32_t types, uint32_t next, uint32_t* out);
  Status number_admits(uint32_t value, const Parts& parts, bool* out) const;
  bool is_integer(uint32_t value) const;
  bool same_number(uint32_t a, uint32_t b) const;

  // schema_string.cpp
  Status string(const Parts& parts, uint32_t next, uint32_t* out);
  Status string_set(const Parts& parts, Automaton& out, bool* any, Texts which = Texts::kWritten);
  Status texts_of(const Parts& parts, Texts which, Lengths* limits, Automaton& out, bool* any);
  Status pattern(uint32_t keyword, Texts which, Lengths* limits, Expressions& to, uint32_t* expr,
                 Match* match) const;
  Status lengths(const Parts& parts, Lengths* to) const;

  // schema_object.cpp
  Status object(const Parts& parts, uint32_t next, uint32_t* out);
  struct Property {
    std::string_view name;
    uint32_t rule = 0;  // of its value
    bool required = false;
    bool allowed = true;  // by propertyNames
  };
  struct Others;
  Status properties(const Parts& parts, Array<Property>& out);
  Status value_of(const Parts& parts, std::string_view name, Parts& out);
  Status others(const Parts& parts, const Array<Property>& named, Array<Others>& out);
  Status names(const Parts& parts, Automaton& out, bool* any);
  Status pattern_of(uint32_t schema, const Automaton** out);

  // schema_notation.cpp: strings and names
  uint32_t quote(uint32_t next);
  Status marked_texts(const Parts& parts, Automaton& out);
  uint32_t any_marked_text();
  uint32_t quoted(std::string_view text, uint32_t next);
  uint32_t member_name(std::string_view name, uint32_t value);
  const Automaton& bare_names();
  static void sort_names(Array<Property>& named);

  // schema_tags.cpp
  Status tags(const Parts& parts, uint32_t next, uint32_t* out);
  Status misread(uint32_t types, Automaton& out) const;
  Status plain_text(const Parts& parts, uint32_t types, uint32_t* out);

  // schema_array.cpp
  Status array(const Parts& parts, uint32_t next, uint32_t* out);
  struct Items {
    uint32_t prefix;  // a list of schemas
    uint32_t rest;    // the schema of the others
  };
  Items items_of(const Part& part) const;
  Status item_schemas(const Parts& parts, uint32_t index, Parts& out);
  Status some_items(const Parts& parts, uint32_t min, uint32_t max, uint32_t n_prefix,
                    const Part& some, uint32_t close, uint32_t* first);

  // Helpers.
  uint32_t get(const Part& part, std::string_view keyword) const {
    return part.kind == Part::kSatisfies ? json_.find(part.node, keyword) : Json::kNone;
  }
  bool breaks(const Part& part, std::string_view keyword) const {
    return part.kind == Part::kBreaks && json_.name(part.node) == keyword;
  }
  /// Calls f(keyword's value) for every schema of the list that has it.
  template <class F>
  Status each(const Parts& parts, std::string_view keyword, F&& f) const {
    for (const Part& p : parts) {
      const uint32_t value = get(p, keyword);
      if (value != Json::kNone) MOE_TRY(f(value));
    }
    return {};
  }
  Status count(uint32_t value, uint32_t* out) const;
  Status least_and_most(const Parts& parts, std::string_view least, std::string_view most,
                        uint32_t* min, uint32_t* max) const;
  Status error(moe_status code, uint32_t node, const char* what) const;
  Status unsupported(uint32_t node, const char* what) const {
    return error(MOE_ERR_UNSUPPORTED, node, what);
  }
  Status malformed(uint32_t node, const char* expected) const {
    return error(MOE_ERR_FORMAT, node, expected);
  }
  Status at(uint32_t node, const Status& status) const;
  const Allocator& allocator() const { return json_.allocator(); }

  const Json& json_;
  Network& network_;
  SchemaWork& work_;
  Keys keys_;  // of lists; their number is an index of rules_
  Array<uint32_t> rules_;
  Array<uint8_t> checked_;     // per node of the text: bits
  Array<uint32_t> resources_;  // per node: the schema that references from there begin at
  const TagStyle* tags_ = nullptr;
  const Notation* notation_ = nullptr;
  Automaton bare_names_;
  bool in_call_ = false;      // arguments of a tool
  bool unsure_ = false;       // valid() said no of a value that may be valid
  bool ref_alone_ = false;    // what stands beside $ref is ignored (up to draft 7)
  bool point_tells_ = false;  // 2.0 is no integer (up to draft 4)
  uint32_t shared_[kShared];  // rules; ~0: not made yet
  struct Pattern {
    uint32_t node;
    Automaton automaton;
  };
  Array<Pattern> patterns_;  // of patternProperties
};

/// Calls f(value) for the values of enum and const that satisfy all the schemas.
template <class F>
Status SchemaCompiler::each_value(const Parts& parts, uint32_t types, F&& f) {
  uint32_t list = Json::kNone;
  uint32_t only = Json::kNone;
  for (const Part& p : parts) {
    if (only == Json::kNone) only = get(p, "const"sv);
    if (list == Json::kNone) list = get(p, "enum"sv);
  }
  if (only == Json::kNone && json_.kind(list) != Json::kArray) {
    return malformed(list, "expected an array of values");
  }
  for (uint32_t c = only != Json::kNone ? only : json_.first(list); c != Json::kNone;
       c = only != Json::kNone ? Json::kNone : json_.next(c)) {
    bool admitted = false;
    if ((types & type_of(c)) == 0) continue;
    MOE_TRY(admits(c, parts, &admitted));
    if (admitted) MOE_TRY(f(c));
  }
  return {};
}

}  // namespace moe::grammar
