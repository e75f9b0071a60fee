// SPDX-License-Identifier: MIT
#pragma once
// Reads the configuration from a model file's metadata.

#include "formats/moe/schema.h"
#include "src/model/config.h"

namespace moe {

/// Fills `out` (must be empty). MOE_ERR_UNSUPPORTED names an unknown kind; validate() checks
/// ranges. RoPE factors point into the metadata.
Status read_config(const fbs::ModelConfig& config, ModelConfig* out);

}  // namespace moe
