// SPDX-License-Identifier: MIT
#pragma once
// Lines typed at a terminal, with editing and a history (libedit).

#include <cstdint>
#include <memory>
#include <string>

namespace moe_cli {

enum class Typed : uint8_t {
  kLine,
  kDropped,  // Ctrl-C took back what was typed; the next one is asked for
  kNothing,  // Ctrl-C on an empty line, or another signal that ends the command
  kEnd       // the end of input
};

/// At most one at a time.
class LineEditor {
 public:
  /// `coloured`: the prompt. Null where lines cannot be edited: stdin or stderr is not a terminal,
  /// TERM names a simple one, or the command was built without libedit.
  static std::unique_ptr<LineEditor> open(bool coloured);
  virtual ~LineEditor() = default;

  /// The next line without its end. Text that was pasted, or an entry of the history, may have put
  /// several lines into it.
  virtual Typed read(const char* prompt, std::string* line) = 0;
  /// Adds an entry of one or more lines to the history, if it is not empty.
  virtual void remember(const std::string& text) = 0;
};

}  // namespace moe_cli
