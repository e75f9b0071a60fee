#pragma once
// Checkpoints of `transformers` that GPTQ, AWQ, compressed-tensors or bitsandbytes quantised, or
// that are FP8, as the checkpoint they were made of: each matrix is one tensor NAME.weight again,
// read from its parts.

#include "formats/import/checkpoint.h"

namespace moe {

/// Looks at quantization_config of config.json (or quantize_config.json, AutoGPTQ's) and takes it
/// away when it is one of these. Throws MOE_ERR_UNSUPPORTED for a kind of quantisation that is not
/// read, MOE_ERR_SHAPE or MOE_ERR_FORMAT when a tensor is not what the configuration says.
void unpack_checkpoint(Checkpoint* checkpoint);

}  // namespace moe
