// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints that bitsandbytes quantised to eight bits (llm_int8.h) or four (NF4, FP4). A four-bit
// matrix consists of its codes row by row, two per byte, a table of 16 floats, and one factor per
// block of 64 codes, the block's largest magnitude. The factors may themselves be eight-bit codes.

#include "formats/import/checkpoint.h"

namespace moe {

/// True if `quantization` (of config.json) declares it. Older ones do not name their method.
bool is_bitsandbytes(const JsonNode& quantization);

/// Makes each of them one tensor of ordinary weights, table[code] * factor, or as llm_int8.h says.
/// Throws MOE_ERR_NOT_FOUND, MOE_ERR_SHAPE, MOE_ERR_NON_FINITE or MOE_ERR_FORMAT when a tensor is
/// not what the others say, or the configuration does not say which kind they are.
void unpack_bitsandbytes(Checkpoint* checkpoint, const JsonNode& quantization);

}  // namespace moe
