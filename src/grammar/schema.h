// SPDX-License-Identifier: MIT
#pragma once
// JSON Schema as a grammar.

#include "src/grammar/network.h"

namespace moe::grammar {

/// The work of compiling so far. It is bounded, because a small schema can take long; the schemas
/// of a request share one.
struct SchemaWork {
  uint64_t n_steps = 0;
  uint64_t n_key_bytes = 0;
  uint64_t n_rules = 0;
};

/// *root: the rule of the texts that satisfy the schema (docs/structured.md says which of its
/// keywords are there, and how the text is spelled). Errors name the place as a JSON pointer.
Status compile_schema(std::string_view text, Network& network, uint32_t* root);

/// Another notation of JSON, Gemma's: a mark in place of the quotes around strings, which have no
/// escapes, names without quotes where that is possible, no white space.
struct Notation {
  std::string_view quote;  // no string contains it
  int32_t token = -1;      // its special token; -1: it is spelled
};

/// The arguments of a call: objects that satisfy the schema, without white space before them.
/// notation: null for JSON.
Status compile_object(std::string_view text, const Notation* notation, Network& network,
                      SchemaWork& work, uint32_t* rule);

/// How the members of an object stand in tags. The text of an argument is JSON without quotes
/// around strings, so that "5" may be a number or a text: `types` says how a reader takes it.
struct TagStyle {
  std::string_view value_end;  // a text that ends a value; no string contains it
  /// The node that reads an argument's name and everything around it and its value.
  uint32_t (*argument)(void* user, Network& network, std::string_view name, uint32_t value_rules[2],
                       uint32_t next) = nullptr;
  /// The types of JSON, as ArgumentType, as which a reader takes the text of an argument; 0: all.
  uint32_t (*types)(void* user, std::string_view name) = nullptr;
  /// Whether tags can hold the name.
  bool (*writable)(void* user, std::string_view name) = nullptr;
  void* user = nullptr;
};

/// Objects that satisfy the schema, with their members in tags, in the order of the schema; only
/// those that it names.
Status compile_tags(std::string_view text, const TagStyle& style, Network& network,
                    SchemaWork& work, uint32_t* rule);

}  // namespace moe::grammar
