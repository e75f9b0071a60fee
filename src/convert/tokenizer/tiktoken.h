// SPDX-License-Identifier: MIT
#pragma once
// Reads tiktoken.model, the vocabulary of a tokenizer of the package `tiktoken`: lines of a token's
// bytes in base64 and its rank, which is its id.

#include <functional>

#include "formats/import/checkpoint.h"

namespace moe {

inline constexpr const char* kTiktokenFile = "tiktoken.model";

/// Kimi's pattern, also that of its GGUF files: words by upper and lower case, with Chinese
/// characters apart.
inline constexpr const char* kKimiPattern =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The folder's tiktoken.model as a tokenizer.json; null if it has none, or one whose pattern is
/// not known: the file does not contain it, and Kimi's (K2, Moonlight and others) is recognised by
/// tokenizer_class "TikTokenTokenizer" in tokenizer_config.json, which also names the special
/// tokens. Throws a Failure that names the line. step() is called from time to time.
Json tiktoken_tokenizer(const Checkpoint& checkpoint, const std::function<void()>& step);

}  // namespace moe
