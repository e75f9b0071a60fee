// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints of the package compressed-tensors, which llm-compressor writes. Each group of its
// configuration has a format.

#include "formats/import/checkpoint.h"

namespace moe {

/// Makes each quantised matrix one tensor NAME.weight. Throws MOE_ERR_UNSUPPORTED for a format that
/// is not read, and what its reader throws.
void unpack_compressed_tensors(Checkpoint* checkpoint, const JsonNode& quantization);

}  // namespace moe
