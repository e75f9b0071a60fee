#pragma once
// Lines typed at a terminal, with editing and a history (libedit).

#include <memory>
#include <string>

namespace moe_cli {

/// At most one at a time.
class LineEditor {
 public:
  /// Null where lines cannot be edited: stdin or stderr is not a terminal, TERM names a simple one,
  /// or the command was built without libedit.
  static std::unique_ptr<LineEditor> open();
  virtual ~LineEditor() = default;

  /// The next line without its end, which joins the history. Text that was pasted may have put
  /// several lines into it. False at the end of input, and after Ctrl-C.
  virtual bool read(const char* prompt, std::string* line) = 0;
  /// Adds a line to the history, if it is not empty.
  virtual void remember(const std::string& line) = 0;
};

}  // namespace moe_cli
