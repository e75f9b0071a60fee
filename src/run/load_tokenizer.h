#pragma once
// The tokenizer of a model file, ready to use.

#include "formats/moe/schema.h"
#include "src/text/tokenizer.h"

namespace moe {

/// `table` has passed the FlatBuffers verifier; its memory is viewed and must outlive the
/// tokenizer. model_vocab: the model's vocabulary size, which bounds the ids. Errors as
/// Tokenizer::create().
Result<Box<Tokenizer>> load_tokenizer(const fbs::Tokenizer& table, uint32_t model_vocab,
                                      const Allocator& allocator);

}  // namespace moe
