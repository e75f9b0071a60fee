#pragma once
// Tensors of quantised checkpoints with scales of activations and the cache. The runtime computes
// such scales itself.

#include <string>
#include <vector>

namespace moe {

/// Their possible names for matrix `name`.
std::vector<std::string> unused_scales(const std::string& name);

}  // namespace moe
