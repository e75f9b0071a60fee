// SPDX-License-Identifier: MIT
#pragma once
// Loads the tokenizer of a model file.

#include "formats/moe/schema.h"
#include "src/text/tokenizer.h"

namespace moe {

/// `table` has passed the FlatBuffers verifier; the tokenizer refers to its memory, which must
/// outlive it. model_vocab: the model's vocabulary size, which limits the ids. begin_id: the
/// model's BOS if add_bos is set, otherwise -1. Errors as Tokenizer::create().
Result<Box<Tokenizer>> load_tokenizer(const fbs::Tokenizer& table, uint32_t model_vocab,
                                      const Allocator& allocator, int32_t begin_id = -1);

/// False if this build supports only the kind "bytes" and the file has another: the model then
/// works with token ids only.
bool can_load_tokenizer(const fbs::Tokenizer& table);

}  // namespace moe
