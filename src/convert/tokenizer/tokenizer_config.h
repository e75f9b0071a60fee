#pragma once
// What tokenizer_config.json adds to tokenizer.json when `transformers` reads both.

#include <string>
#include <utility>
#include <vector>

#include "formats/import/json.h"

namespace moe {

/// tokenizer.json with the tokens of added_tokens_decoder that it lacks, and, for the classes that
/// read add_bos_token and add_eos_token, with a post-processor that adds these, unless it has one.
Json complete_tokenizer(Json tokenizer, const JsonNode& config);

/// The text of a special token, "<s>" or {"content": "<s>", ...}; empty if it is missing.
std::string token_name(const JsonNode& node, const char* key);

using NamedIds = std::vector<std::pair<std::string, uint64_t>>;

/// The post-processor that adds these tokens before and after a text; null if there are none.
Json surround(const NamedIds& before, const NamedIds& after);

}  // namespace moe
