// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints of AMD's Quark: FP8 and MXFP4.

#include "formats/import/checkpoint.h"

namespace moe {

/// Makes each quantised matrix one tensor NAME.weight. Throws MOE_ERR_UNSUPPORTED for other weights
/// and for algorithms that change inputs too, and what unpack_fp8 and unpack_fp4 throw.
void unpack_quark(Checkpoint* checkpoint, const JsonNode& quantization);

}  // namespace moe
