// SPDX-License-Identifier: MIT
#pragma once
// The line that says what a command is doing.

#include <string>

namespace moe_cli {

/// A status line on stderr, only if stderr is a terminal. Erased at the end.
class StatusLine {
 public:
  StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { clear(); }

  void show(const std::string& text);
  /// The same, but at most twice a second.
  void update(const std::string& what, int done, int total);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  double last_ = 0;
};

}  // namespace moe_cli
