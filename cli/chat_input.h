#pragma once
// The messages that a user types into moe chat.

#include <istream>
#include <string>

#include "cli/line_editor.h"

namespace moe_cli {

/// What /help shows.
inline constexpr const char* kChatHelp =
    "  /clear, /reset   starts again\n"
    "  /system TEXT     changes the system prompt; without TEXT removes it\n"
    "  /show            shows what the model reads\n"
    "  /quit, /exit     ends, as Ctrl-D does\n"
    "  text\\            a line that ends with a backslash continues in the next one\n"
    "  \"\"\"text\"\"\"       a message of one or more lines, never a command\n";

struct ChatInput {
  std::string text;
  bool quoted = false;  // given between """, so not a command
};

struct ChatSource {
  std::istream& in;
  bool terminal = false;
  LineEditor* editor = nullptr;  // of the terminal; may be null
};

/// The next message: a line; several lines, of which all but the last end with a backslash; or what
/// is between """ at the start of a line and """ at the end of the same or a later one, without the
/// line ends next to them. The end of input ends a message, too. False at the end of input. At a
/// terminal shows a prompt for each line, and ends with false after Ctrl-C.
bool next_message(const ChatSource& source, ChatInput* message);

}  // namespace moe_cli
