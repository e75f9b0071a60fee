// SPDX-License-Identifier: MIT
#pragma once
// The progress bar of long work.

#include <cstdint>

namespace moe_cli {

/// A progress bar with rate and remaining time on stderr, only if stderr is a terminal.
class Progress {
 public:
  explicit Progress(bool bytes) : bytes_(bytes) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// For moe_progress_fn: `user` is a Progress. False after Ctrl-C.
  static bool callback(void* user, uint64_t done, uint64_t total, const char* what);

 private:
  void show(uint64_t done, uint64_t total, const char* what);
  bool bytes_;
  double start_ = -1;
  double last_ = -1;
  bool shown_ = false;
};

}  // namespace moe_cli
