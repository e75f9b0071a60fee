// SPDX-License-Identifier: MIT
#pragma once
// Tokenizer classes of `transformers` 5: which one belongs to a checkpoint, and what it does with a
// tokenizer.json. docs/checkpoints.md says what of it counts here.

#include <cstdint>
#include <string>

#include "formats/import/json.h"

namespace moe {

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// How a class uses add_prefix_space.
enum class PrefixSpace : uint8_t {
  kIgnored,    // it does not read the key
  kByteLevel,  // of its ByteLevel step; false unless given
  kMetaspace,  // of its Metaspace step; true unless given
  kLlama       // the same, and `legacy` says whether also after special tokens
};

/// A class that puts steps of its own in the place of those in tokenizer.json.
struct TokenizerClass {
  const char* name;
  const char* aliases;  // separated by spaces
  PrefixSpace prefix;
  // Members of a tokenizer.json with these steps.
  const char* normalizer;
  const char* pre_tokenizer;
  const char* model;
  /// Keys of the tokens around a text, separated by spaces; null: those of tokenizer.json.
  const char* before;
  const char* after;
  const char* tokens;  // the texts of special tokens for keys that are missing, as JSON
};

/// The class for a checkpoint.
struct ClassChoice {
  std::string name;                       // empty: tokenizer.json counts as it stands
  const TokenizerClass* steps = nullptr;  // null for an empty name, or if its steps are not known
  std::string place;                      // the file and key that say so, for messages
};

/// As AutoTokenizer chooses it. `model` is config.json, `config` tokenizer_config.json; null where
/// the file is missing.
ClassChoice choose_class(const Json& tokenizer, const Json& config, const Json& model);

/// The member, or "" unless it is a string.
std::string text_member(const Json& object, const char* key);

}  // namespace moe
