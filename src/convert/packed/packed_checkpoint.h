// SPDX-License-Identifier: MIT
#pragma once
// Presents quantised `transformers` checkpoints (GPTQ, AWQ, BitNet, compressed-tensors,
// bitsandbytes, FP8, ModelOpt, Quark) like the original: each matrix is one tensor NAME.weight,
// read from its parts.

#include "formats/import/checkpoint.h"

namespace moe {

/// Reads and removes quantization_config of config.json, or of its text_config, if it is one of
/// these; keys that may change weights and are not known stay, with a quant_method of null. Without
/// it, reads quantize_config.json of AutoGPTQ or hf_quant_config.json of ModelOpt. Throws
/// MOE_ERR_UNSUPPORTED for an unknown kind of quantisation and for two that differ, MOE_ERR_SHAPE
/// or MOE_ERR_FORMAT if a tensor contradicts the configuration.
void unpack_checkpoint(Checkpoint* checkpoint);

}  // namespace moe
