#include "cli/chat_input.h"

#include <unistd.h>

#include <iostream>
#include <string_view>

#include "cli/interrupt.h"
#include "cli/text_input.h"

namespace moe_cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

bool line_after(const ChatSource& source, const char* prompt, std::string* line) {
  if (!source.terminal) return next_line(source.in, line);
  if (source.editor != nullptr) {
    if (source.editor->read(prompt, line)) return true;
  } else {
    std::cerr << prompt << std::flush;
    if (wait_for_input(STDIN_FILENO) && next_line(source.in, line)) return true;
  }
  std::cerr << "\n";
  return false;
}

void check_length(const std::string& text) {
  if (text.size() <= kMostPromptBytes) return;
  throw CallError(MOE_ERR_TOO_LONG, "stdin: a message is longer than " +
                                        std::to_string(kMostPromptBytes >> 20) + " MiB, the limit");
}

}  // namespace

bool next_message(const ChatSource& source, ChatInput* message) {
  std::string line;
  if (!line_after(source, "> ", &line)) return false;
  message->quoted = line.starts_with(kQuotes);
  message->text = message->quoted ? "\n" + line.substr(kQuotes.size()) : line;
  std::string& text = message->text;
  const std::string_view end = message->quoted ? kQuotes : "\\";
  while (text.ends_with(end) != message->quoted) {
    if (!message->quoted) text.pop_back();
    if (!line_after(source, ". ", &line)) break;
    text += "\n" + line;
    check_length(text);
  }
  if (!message->quoted) return true;
  if (text.ends_with(kQuotes)) text.resize(text.size() - kQuotes.size());
  if (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.starts_with("\n\n") ? 2 : 1);
  return true;
}

}  // namespace moe_cli
