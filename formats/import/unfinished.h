// SPDX-License-Identifier: MIT
#pragma once
// Names that programs give to downloads until they have ended.

#include <string>
#include <vector>

namespace moe {

/// The first of `names` that belongs to a download of weights which has not ended: with the ending
/// of a browser or another program behind .safetensors or .gguf. Empty if there is none.
std::string unfinished_name(const std::vector<std::string>& names);

/// Throws MOE_ERR_FORMAT if aria2's control file is beside `path`: the file has its size from the
/// start, and zeros where nothing has arrived.
void refuse_unfinished(const std::string& path);

}  // namespace moe
