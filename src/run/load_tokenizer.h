#pragma once
// The tokenizer of a model file, ready to use.

#include "formats/moe/schema.h"
#include "src/text/tokenizer.h"

namespace moe {

/// `table` has passed the FlatBuffers verifier; its memory is viewed and must outlive the
/// tokenizer. model_vocab: the model's vocabulary size, which bounds the ids. begin_id: the model's
/// BOS when its add_bos is set, otherwise -1. Errors as Tokenizer::create().
Result<Box<Tokenizer>> load_tokenizer(const fbs::Tokenizer& table, uint32_t model_vocab,
                                      const Allocator& allocator, int32_t begin_id = -1);

/// False when this build has only the kind "bytes" and the file another one: the model then runs
/// with token ids.
bool can_load_tokenizer(const fbs::Tokenizer& table);

}  // namespace moe
