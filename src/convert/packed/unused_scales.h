// SPDX-License-Identifier: MIT
#pragma once
// Tensors of quantised checkpoints with scales of activations and the cache, which the runtime
// computes itself, and scales without codes.

#include "formats/import/checkpoint.h"

namespace moe {

/// Names that scales of the activations of matrix `name` may have.
std::vector<std::string> unused_scales(const std::string& name);

/// The NAMEs of tensors NAME`scales` that have neither NAME`codes` nor NAME.weight.
std::vector<std::string> scales_alone(const Checkpoint& checkpoint, const std::string& scales,
                                      const char* codes);

/// Removes the unused ones of every matrix NAME.weight, and the scales of keys and values.
void drop_unused_scales(Checkpoint* checkpoint);

}  // namespace moe
