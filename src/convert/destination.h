#pragma once
// A conversion overwrites neither its input nor its own output.

#include <string>

namespace moe {

/// Throws MOE_ERR_ARGUMENT, naming both, if `destination` or its partial file is, under any name,
/// the checkpoint `source`: the GGUF file or one of its parts, or a file in the folder that is
/// neither a model file, saved statistics nor empty.
void check_destination(const std::string& source, const std::string& destination);

/// Throws MOE_ERR_ARGUMENT if both paths, of statistics and of the model, or their partial files
/// name one file.
void check_separate(const std::string& statistics, const std::string& destination);

/// Throws MOE_ERR_ARGUMENT if the file to write statistics to is a model file.
void check_no_model(const std::string& statistics);

}  // namespace moe
