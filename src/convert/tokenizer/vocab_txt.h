// SPDX-License-Identifier: MIT
#pragma once
// BERT's tokenizer in its oldest form: vocab.txt, a token per line, without tokenizer.json.

#include "formats/import/checkpoint.h"

namespace moe {

inline constexpr const char* kVocabTxt = "vocab.txt";

/// True if the checkpoint's tokenizer is there as vocab.txt only.
bool has_only_vocab_txt(const Checkpoint& checkpoint);

/// The tokenizer.json that `transformers` makes of vocab.txt and the keys of tokenizer_config.json.
Json tokenizer_of_vocab_txt(const Checkpoint& checkpoint);

/// BERT's names of special tokens, as the keys that tokenizer_config.json (`config`) lacks.
Json default_special_tokens(const Json& config);

}  // namespace moe
