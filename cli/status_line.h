#pragma once

#include <string>

namespace moe_cli {

/// One line on stderr that says what goes on, only when stderr is a terminal. It is wiped at the
/// end.
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
