#pragma once
// Tensors of quantised checkpoints that say how activations and the cache are rounded. The runtime
// finds such scales itself.

#include <string>
#include <vector>

namespace moe {

/// The names that they may have beside matrix `name`.
std::vector<std::string> unused_scales(const std::string& name);

}  // namespace moe
