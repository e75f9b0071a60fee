// SPDX-License-Identifier: MIT
#pragma once
// Reads vocabularies of the package `tiktoken`, tiktoken.model (Kimi) and qwen.tiktoken (Qwen 1):
// lines of a token's bytes in base64 and its rank, which is its id.

#include <functional>

#include "formats/import/checkpoint.h"

namespace moe {

/// Kimi's pattern, also that of its GGUF files: words by upper and lower case, with Chinese
/// characters apart.
inline constexpr const char* kKimiPattern =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Presents the folder's vocabulary of that kind as a tokenizer.json, where the class in
/// tokenizer_config.json is one whose pattern and special tokens are known: a vocabulary has
/// neither. Kimi's (K2, Moonlight and others) is "TikTokenTokenizer", Qwen 1's "QWenTokenizer".
/// Throws a Failure that names the line. step() is called from time to time.
void read_tiktoken(Checkpoint* checkpoint, const std::function<void()>& step);

}  // namespace moe
