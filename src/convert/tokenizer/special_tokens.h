// SPDX-License-Identifier: MIT
#pragma once
// The added and special tokens that tokenizer_config.json and the files beside it give to a
// tokenizer.json, as `transformers` reads them.

#include <map>
#include <string>
#include <vector>

#include "formats/import/json.h"
#include "src/convert/tokenizer/tokenizer_class.h"

namespace moe {

/// The entries of added_tokens_decoder by their ids, each as one of added_tokens. Throws
/// MOE_ERR_FORMAT for another kind of value, a key that is no id, and an entry without "content".
std::map<uint64_t, Json> tokens_by_id(const JsonNode& list);

/// tokenizer_config.json with the special tokens of special_tokens_map.json, which count if the
/// former has no added_tokens_decoder. Either may be null.
Json with_special_map(Json config, const Json& map);

/// Adds the tokens of added_tokens_decoder, or without it those of added_tokens.json, to those of
/// tokenizer.json; properties in added_tokens_decoder override those in tokenizer.json. Warns if a
/// class with steps of its own would lose tokens of tokenizer.json.
void add_tokens(const Json& config, const Json& added_tokens, const ClassChoice& choice,
                Json* tokenizer, std::vector<std::string>* warnings);

/// Marks the special tokens that the files or the class name: added ones as special, and those that
/// only the vocabulary has as added, so that a text can contain them. Warns about names that the
/// vocabulary lacks.
void mark_special_tokens(const Json& config, const ClassChoice& choice, Json* tokenizer,
                         std::vector<std::string>* warnings);

/// The text of a special token, "<s>" or {"content": "<s>", ...}; empty if it is missing.
std::string token_name(const JsonNode& node, const char* key);

/// The id of a token of tokenizer.json; -1 if it lacks the token.
int64_t token_id(const Json& tokenizer, const std::string& name);

}  // namespace moe
