// SPDX-License-Identifier: MIT
#pragma once
// Tensors that a checkpoint stores twice.

#include "formats/import/checkpoint.h"

namespace moe {

/// Throws if the checkpoint has both tensors and they differ, though the configuration declares
/// them to be one. `key`: what to set in config.json so that both are used; "": nothing.
void check_copy(const Checkpoint& checkpoint, const std::string& copy, const std::string& original,
                const char* key = "");

/// False if the checkpoint has `copy`, and it is not the same tensor as `original`: in two types,
/// or in blocks, which are rounded in more than one way, not nearly the same.
bool is_copy(const Checkpoint& checkpoint, const std::string& copy, const std::string& original);

}  // namespace moe
