#pragma once
// Checkpoints with FP8 (E4M3) matrices and separate scale tensors: DeepSeek-V3's blocks of 128 by
// 128, and one scale per output or in total.

#include "formats/import/checkpoint.h"

namespace moe {

/// True if `quantization` (of config.json) has quant_method "fp8", or compressed-tensors with
/// format float-quantized.
bool is_fp8(const JsonNode& quantization);

/// Replaces each matrix by one tensor NAME.weight of ordinary weights, code * scale. Throws
/// MOE_ERR_UNSUPPORTED for an unknown kind, MOE_ERR_NOT_FOUND, MOE_ERR_SHAPE or MOE_ERR_FORMAT if a
/// tensor contradicts the configuration.
void unpack_fp8(Checkpoint* checkpoint, const JsonNode& quantization);

}  // namespace moe
