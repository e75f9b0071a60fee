// SPDX-License-Identifier: MIT
#pragma once
// Writes an imported tokenizer to a model file.

#include "formats/moe/schema.h"
#include "src/convert/tokenizer/tokenizer_json.h"

namespace moe {

/// Throws the Failure that opening the model would return: bad ids, merges, patterns, steps; more
/// tokens than the model's vocabulary (0: unknown). Call it before anything is written.
void check_tokenizer(const TokenizerData& data, uint32_t model_vocab);

/// The ids of a text without surrounding ids; does not recognise special tokens in the text. Throws
/// MOE_ERR_TEXT.
std::vector<int32_t> encode_text(const TokenizerData& data, uint32_t model_vocab,
                                 std::string_view text);

flatbuffers::Offset<fbs::Tokenizer> write_tokenizer(flatbuffers::FlatBufferBuilder& builder,
                                                    const TokenizerData& data);

}  // namespace moe
