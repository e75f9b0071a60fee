// SPDX-License-Identifier: MIT
#pragma once
// Matrices of integer codes, 4 or 8 bits, with scales and zero points (packed_matrix.h): GPTQ, AWQ
// and compressed-tensors.

#include "formats/import/checkpoint.h"

namespace moe {

/// Each replaces the tensors of every such matrix by one, NAME.weight. Throws MOE_ERR_UNSUPPORTED
/// for what is not read, MOE_ERR_NOT_FOUND, MOE_ERR_SHAPE or MOE_ERR_FORMAT if a tensor contradicts
/// the configuration.
void unpack_gptq(Checkpoint* checkpoint, const JsonNode& quantization);
void unpack_awq(Checkpoint* checkpoint, const JsonNode& quantization);
/// Unpack words and bytes of codes of compressed-tensors; `weights`: of its groups that have them.
void unpack_words(Checkpoint* checkpoint, std::span<const JsonNode> weights);
void unpack_bytes(Checkpoint* checkpoint, std::span<const JsonNode> weights);

}  // namespace moe
