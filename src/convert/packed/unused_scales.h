// SPDX-License-Identifier: MIT
#pragma once
// Tensors of quantised checkpoints with scales of activations and the cache. The runtime computes
// such scales itself.

#include "formats/import/checkpoint.h"

namespace moe {

/// Names that scales of the activations of matrix `name` may have.
std::vector<std::string> unused_scales(const std::string& name);

/// Removes those of every matrix NAME.weight, and the scales of keys and values.
void drop_unused_scales(Checkpoint* checkpoint);

}  // namespace moe
