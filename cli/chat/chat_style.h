// SPDX-License-Identifier: MIT
#pragma once
// How a terminal shows whose text is whose in moe chat: the prompt, thinking, notes of the program.

#include <string>

namespace moe_cli {

/// On a terminal colours, unless NO_COLOR is set or TERM names a simple one; elsewhere, and then,
/// words: notes begin with "moe: ", thinking with "thinking: ", the prompt is "> ".
class ChatStyle {
 public:
  ChatStyle();
  bool colours() const { return colours_; }

  /// A line of the program on stderr, "moe: TEXT".
  void note(const std::string& text) const;
  /// Before and after a text that is neither the user's nor the answer.
  void begin_faint() const;
  void end_faint() const;

 private:
  bool colours_;
};

/// Everything that is written to stderr during its lifetime.
class Faint {
 public:
  explicit Faint(const ChatStyle& style) : style_(style) { style_.begin_faint(); }
  ~Faint() { style_.end_faint(); }
  Faint(const Faint&) = delete;
  Faint& operator=(const Faint&) = delete;

 private:
  const ChatStyle& style_;
};

}  // namespace moe_cli
