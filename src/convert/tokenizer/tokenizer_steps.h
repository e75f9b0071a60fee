// SPDX-License-Identifier: MIT
#pragma once
// Normalisers, pre-tokenizers and decoders of a tokenizer.json as lists of steps.

#include "src/convert/tokenizer/tokenizer_json.h"

namespace moe {

/// Each takes the node of that name, which may be null. An unknown kind throws MOE_ERR_UNSUPPORTED
/// with its name.
std::vector<TextStepData> read_normalizers(const JsonNode& node);
std::vector<TextStepData> read_pre_tokenizers(const JsonNode& node);
std::vector<TextStepData> read_decoders(const JsonNode& node);

}  // namespace moe
