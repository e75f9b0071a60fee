// SPDX-License-Identifier: MIT
#pragma once
// Reads a checkpoint's settings of sampling: generation_config.json, or a GGUF file's
// general.sampling.

#include "src/convert/importer.h"

namespace moe {

/// Stores in the configuration, which must be valid, what the sampler has, for a model that
/// continues texts. What it does not have, and values out of range, are named in a warning.
void read_sampling_advice(const Checkpoint& checkpoint, Imported* imported);

}  // namespace moe
