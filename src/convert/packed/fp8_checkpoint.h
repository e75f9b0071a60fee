#pragma once
// Checkpoints whose matrices are FP8 (E4M3) with scales in tensors of their own: DeepSeek-V3's
// blocks of 128 by 128, and one scale for each output or for all.

#include "formats/import/checkpoint.h"

namespace moe {

/// Whether `quantization` (of config.json) says so: quant_method "fp8", or compressed-tensors whose
/// format is float-quantized.
bool is_fp8(const JsonNode& quantization);

/// Makes each of them one tensor NAME.weight of ordinary weights, code * scale. Throws
/// MOE_ERR_UNSUPPORTED for a kind that is not read, MOE_ERR_NOT_FOUND, MOE_ERR_SHAPE or
/// MOE_ERR_FORMAT when a tensor is not what the configuration says.
void unpack_fp8(Checkpoint* checkpoint, const JsonNode& quantization);

}  // namespace moe
