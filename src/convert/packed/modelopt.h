// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints of NVIDIA's Model Optimizer: FP8 and NVFP4.

#include "formats/import/checkpoint.h"

namespace moe {

/// `says`: quantization_config of config.json, or hf_quant_config.json. Makes each quantised matrix
/// one tensor NAME.weight. Throws MOE_ERR_UNSUPPORTED for another algorithm, and what
/// unpack_fp8 and unpack_fp4 throw.
void unpack_modelopt(Checkpoint* checkpoint, const JsonNode& says);

}  // namespace moe
