// SPDX-License-Identifier: MIT
// Reads a message that may continue over several lines, in quotes or after a backslash, and
// recognises commands.
#include "cli/chat/chat_input.h"

#include <unistd.h>

#include <cctype>
#include <iostream>
#include <string_view>

#include "cli/io/interrupt.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

// The next line of a message, of which `begun` is there already.
Typed line_after(const ChatSource& source, bool begun, std::string* line) {
  if (!source.terminal) return next_line(source.in, line) ? Typed::kLine : Typed::kEnd;
  const char* prompt = begun ? ". " : source.prompt.c_str();
  if (source.editor != nullptr) {
    const Typed typed = source.editor->read(prompt, line);
    if (typed != Typed::kNothing) return typed;
  } else {
    std::cerr << prompt << std::flush;
    if (wait_for_input(STDIN_FILENO) && next_line(source.in, line)) return Typed::kLine;
  }
  std::cerr << "\n";
  return begun && forgive_interrupt() ? Typed::kDropped : Typed::kEnd;
}

void check_length(const std::string& text) {
  if (text.size() <= kMostPromptBytes) return;
  throw CallError(MOE_ERR_TOO_LONG, "stdin: a message is longer than " +
                                        std::to_string(kMostPromptBytes >> 20) + " MiB, the limit");
}

Typed read_message(const ChatSource& source, ChatInput* message) {
  std::string line;
  const Typed first = line_after(source, false, &line);
  if (first != Typed::kLine) return first;
  message->quoted = line.starts_with(kQuotes);
  message->text = message->quoted ? "\n" + line.substr(kQuotes.size()) : line;
  std::string& text = message->text;
  const std::string_view end = message->quoted ? kQuotes : "\\";
  while (text.ends_with(end) != message->quoted) {
    if (!message->quoted) text.pop_back();
    const Typed more = line_after(source, true, &line);
    if (more == Typed::kDropped) return more;
    if (more != Typed::kLine) break;
    text += "\n" + line;
    check_length(text);
  }
  if (!message->quoted) return Typed::kLine;
  if (text.ends_with(kQuotes)) text.resize(text.size() - kQuotes.size());
  if (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.starts_with("\n\n") ? 2 : 1);
  return Typed::kLine;
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

std::string in_quotes(const std::string& text) {
  return std::string(kQuotes) + text + std::string(kQuotes);
}

}  // namespace

bool next_message(const ChatSource& source, ChatInput* message) {
  Typed typed = Typed::kDropped;
  while (typed == Typed::kDropped) typed = read_message(source, message);
  if (typed != Typed::kLine) return false;
  if (source.editor != nullptr) {
    source.editor->remember(message->quoted ? in_quotes(message->text) : message->text);
  }
  return true;
}

std::string as_typed(const std::string& message) {
  const bool plain =
      command_word(message).empty() && !message.starts_with(kQuotes) && !message.ends_with('\\');
  return plain ? message : in_quotes(message);
}

std::string command_word(const std::string& line) {
  size_t end = 1;
  while (end < line.size() && in_word(line[end])) ++end;
  const bool word =
      end > 1 && (end == line.size() || line[end] == ' ' || line[end] == '\t' || line[end] == '\n');
  return line.starts_with('/') && word ? line.substr(0, end) : "";
}

bool template_knows(const std::string& chat_template, const std::string& word) {
  for (size_t at = chat_template.find(word); at != std::string::npos;
       at = chat_template.find(word, at + 1)) {
    const char before = at == 0 ? ' ' : chat_template[at - 1];
    const size_t end = at + word.size();
    const bool whole = end == chat_template.size() || !in_word(chat_template[end]);
    if (whole && before != '<' && before != '[' && !in_word(before))
      return true;  // no end of a tag
  }
  const bool thinks = chat_template.find("enable_thinking") != std::string::npos ||
                      chat_template.find("</think>") != std::string::npos;
  return thinks && (word == "/think" || word == "/no_think" || word == "/nothink");
}

}  // namespace moe_cli
