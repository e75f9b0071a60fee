// SPDX-License-Identifier: MIT
#pragma once
// Changes tokenizer.json as the files beside it say. docs/checkpoints.md has the rules.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/import/json.h"
#include "src/convert/tokenizer/special_tokens.h"

namespace moe {

/// The documents of a tokenizer; null where a file is missing.
struct TokenizerFiles {
  Json tokenizer;                     // tokenizer.json
  Json config = nullptr;              // tokenizer_config.json
  Json special_tokens_map = nullptr;  // special_tokens_map.json
  Json added_tokens = nullptr;        // added_tokens.json
  Json model = nullptr;               // config.json
};

using TokenIds = std::vector<uint32_t>;

struct CompletedTokenizer {
  Json tokenizer;  // tokenizer.json as it counts
  Json config;     // tokenizer_config.json with the special tokens of special_tokens_map.json
  ClassChoice choice;
  std::vector<std::string> warnings;  // of keys that are not obeyed, and of contradictions
};

/// tokenizer.json with what the other files add and change. Throws a Failure.
CompletedTokenizer complete_tokenizer(TokenizerFiles files);

/// Adds warnings if the ids around a text are not those that the keys or the class ask for.
void compare_around(const TokenIds& prefix, const TokenIds& suffix, CompletedTokenizer* completed);

using NamedIds = std::vector<std::pair<std::string, uint64_t>>;

/// The post-processor that adds these tokens before and after a text; null if there are none.
Json surround(const NamedIds& before, const NamedIds& after);

}  // namespace moe
