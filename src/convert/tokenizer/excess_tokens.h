// SPDX-License-Identifier: MIT
#pragma once
// Tokens of a tokenizer.json that the model has no embedding for.

#include "src/convert/tokenizer/tokenizer_json.h"

namespace moe {

/// Removes the added tokens with ids from `vocab_size` on, which the model neither reads nor
/// writes, and returns their texts. Throws MOE_ERR_FORMAT for a token of the vocabulary itself with
/// such an id, and for an added one that the tokenizer needs. `path` names the file in errors.
std::vector<std::string> drop_excess_tokens(TokenizerData* data, uint32_t vocab_size,
                                            const std::string& path);

}  // namespace moe
