#pragma once
// The configuration in a model file's metadata.

#include "formats/moe/schema.h"
#include "src/model/config.h"

namespace moe {

/// Fills `out` (empty before). MOE_ERR_UNSUPPORTED names a kind that this program does not know;
/// ranges are validate()'s. RoPE factors point into the metadata.
Status read_config(const fbs::ModelConfig& config, ModelConfig* out);

}  // namespace moe
