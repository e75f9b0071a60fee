#pragma once
// A conversion never overwrites its input.

#include <string>

namespace moe {

/// Throws MOE_ERR_ARGUMENT, naming both, if `destination` or its partial file is, under any name,
/// the checkpoint `source`: the GGUF file or one of its parts, or a file in the folder that is
/// neither a model file nor empty.
void check_destination(const std::string& source, const std::string& destination);

}  // namespace moe
