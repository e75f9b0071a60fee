// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints that were converted because a command was given one in place of a model file. They
// are kept in $XDG_CACHE_HOME/moe (~/.cache/moe), each as KEY.moe beside KEY.json, which says what
// it was made of. KEY is a hash of the checkpoint's content, of the program's version and
// commit, and of what it is converted to.

#include <cstdint>
#include <string>
#include <vector>

namespace moe_cli {

/// A checkpoint is converted by default, or to floats that hold exactly its weights.
enum class CachedWeights { kDefault, kSource };

/// `path`, or the model file that the checkpoint of this name was converted to, now or earlier.
/// Says on stderr that it converts. Throws CallError.
std::string runnable_file(const std::string& path, CachedWeights weights = CachedWeights::kDefault);

/// A converted checkpoint.
struct CachedModel {
  std::string key;
  std::string source;  // where it was when it was converted; empty if that is not known
  uint64_t bytes = 0;
  int64_t used = 0;  // seconds since 1970
};

/// Throws CallError if there is no home folder, or if the folder belongs to somebody else.
std::string cache_folder();
/// The most recently used first.
std::vector<CachedModel> cached_models();
void remove_cached(const CachedModel& model);
/// True if it was made of the checkpoint of this name, however that is spelled.
bool is_of(const CachedModel& model, const std::string& source);
/// Removes what conversions that were killed left. Waits for one that goes on. Throws CallError.
void clear_leftovers();

}  // namespace moe_cli
