// SPDX-License-Identifier: MIT
#pragma once
// BERT's WordPiece vocabulary in a GGUF file (tokenizer.ggml.model "bert").

#include <span>
#include <string>

#include "formats/import/json_value.h"

namespace moe {

/// A token as in BERT's own vocabulary. In the file "▁" marks the pieces that begin a word; BERT
/// marks the others, by "##". Special tokens, and all that stand in brackets, are the same in both.
std::string wordpiece_text(const std::string& token, bool special);

/// Puts the model and BERT's steps into a tokenizer.json. `unknown`: the token of words without
/// pieces. A file does not say whether texts are made lower case: they are unless more than one
/// token in 50 has a capital.
void put_wordpiece(std::span<const std::string> tokens, Json vocabulary, const std::string& unknown,
                   Json* out);

}  // namespace moe
