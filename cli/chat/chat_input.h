// SPDX-License-Identifier: MIT
#pragma once
// The messages that a user types into moe chat.

#include <istream>
#include <string>

#include "cli/chat/line_editor.h"

namespace moe_cli {

/// The text that /help shows.
inline constexpr const char* kChatHelp =
    "  /clear, /reset   starts again\n"
    "  /system TEXT     changes the system prompt; without TEXT removes it\n"
    "  /show            shows what the model reads\n"
    "  /shift           from now on drops the oldest turns when the context is full\n"
    "  /help            lists these commands\n"
    "  /quit, /exit     ends, as Ctrl-D does\n"
    "  text\\            a line that ends with a backslash continues in the next one\n"
    "  \"\"\"text\"\"\"       a message of one or more lines, never a command: \"\"\"/like "
    "this\"\"\"\n"
    "  With --tools: after a call, what you type is the tool's result\n"
    "  Ctrl-C           stops a reply; clears what is typed; ends on an empty line\n";

struct ChatInput {
  std::string text;
  bool quoted = false;  // given between """, so not a command
};

struct ChatSource {
  std::istream& in;
  bool terminal = false;
  LineEditor* editor = nullptr;  // of the terminal; may be null
  std::string prompt = "> ";     // of the first line
};

/// The next message: a line; several lines, of which all but the last end with a backslash; or what
/// is between """ at the start of a line and """ at the end of the same or a later one, without the
/// line ends next to them. The end of input ends a message, too. False at the end of input. At a
/// terminal shows a prompt for each line; Ctrl-C drops what was typed of a message, and ends with
/// false if that is nothing. The message joins the editor's history as one entry.
bool next_message(const ChatSource& source, ChatInput* message);

/// How a message is typed so that it is taken for one: in quotes if it would be a command, or
/// continue.
std::string as_typed(const std::string& message);

/// The word of a line "/word ...", with its slash; empty if the line does not begin with one. A
/// path such as /etc/fstab is none.
std::string command_word(const std::string& line);

/// Whether a template gives a line that begins with this word a meaning, as SmolLM3's does with
/// /no_think. Qwen3 learnt /think and /no_think; of them its template says only that it can think.
bool template_knows(const std::string& chat_template, const std::string& word);

}  // namespace moe_cli
