// SPDX-License-Identifier: MIT
#pragma once
// Evaluated texts in a folder: a service that starts again, or whose slots are too few, reads their
// keys and values instead of evaluating them.
//
// A file NAME.moe-text is what moe_session_save writes (src/run/saved.h has the layout, of which
// the model and the tokens are read here). The name is a hash of both.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/serve/handles.h"

namespace moe_serve {

/// Used by one thread. Files that other processes add are not seen, those that they remove are
/// found missing.
class StateFolder {
 public:
  struct File {
    std::filesystem::path path;
    std::vector<int32_t> tokens;
    uint64_t n_bytes = 0;
    std::filesystem::file_time_type last_use;
  };

  /// Reads what is in the folder, which is made if it does not exist. witness: an empty session of
  /// the model. Throws CallError.
  StateFolder(const std::string& folder, uint64_t most_bytes, moe_session* witness);

  const std::vector<File>& files() const { return files_; }
  uint64_t n_bytes() const;
  /// Whether a file begins with all these tokens.
  bool holds(const std::vector<int32_t>& tokens) const;
  /// Writes the text of a session; removes files that hold only a beginning of it, then those that
  /// were not used for the longest time until the rest has at most `most_bytes`. A text that alone
  /// has more is not kept. Throws CallError; MOE_ERR_CANCELLED by moe_session_cancel.
  void save(moe_session* session, const std::vector<int32_t>& tokens);
  /// Replaces the session's text. False: the file has gone or cannot be used, and is forgotten; the
  /// session is empty.
  bool load(size_t file, moe_session* session);

 private:
  void add_file(const std::filesystem::path& path);
  void remove_old(uint64_t room);
  void forget(size_t file, bool from_disk);

  std::filesystem::path folder_;
  uint64_t most_bytes_;
  std::string model_;  // how a saved session of the model begins
  std::vector<File> files_;
};

}  // namespace moe_serve
