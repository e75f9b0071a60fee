// SPDX-License-Identifier: MIT
#pragma once
// A conversion overwrites neither its input nor its own output.

#include <string>

namespace moe {

/// Throws MOE_ERR_ARGUMENT, naming both, if `destination` is, under any name, the checkpoint
/// `source`: the GGUF file or one of its parts, or a file in the folder that is
/// neither a model file, saved statistics nor empty.
void check_destination(const std::string& source, const std::string& destination);

/// Throws MOE_ERR_ARGUMENT if both paths, of statistics and of the model, name one file.
void check_separate(const std::string& statistics, const std::string& destination);

enum class Output { kModel, kStatistics };

/// Throws MOE_ERR_ARGUMENT if the destination is a file with other content than an output of this
/// kind: only those are replaced.
void check_replaces(const std::string& destination, Output kind);

}  // namespace moe
