// SPDX-License-Identifier: MIT
#pragma once
// Finds the files of a checkpoint's folder that hold its weights.

#include <string>
#include <vector>

namespace moe {

struct WeightFiles {
  std::string index;               // the file that lists the shards; empty: `names` are all
  std::vector<std::string> names;  // in the folder
  std::vector<std::string> warnings;
};

/// An index, model.safetensors, or the .safetensors files that are there. Throws MOE_ERR_NOT_FOUND
/// if there are none or numbered ones are missing, naming those to download, and
/// MOE_ERR_UNSUPPORTED for an adapter or for pickles only, with a command that converts them.
WeightFiles find_weight_files(const std::string& folder);

/// Throws MOE_ERR_NOT_FOUND, naming what is to be downloaded, unless `missing` is empty. `of`: the
/// number of all files; `who` says that there are so many.
void check_none_missing(const std::string& folder, const std::vector<std::string>& missing,
                        size_t of, const char* who);

}  // namespace moe
