// SPDX-License-Identifier: MIT
// Colours only for a terminal that wants them.
#include "cli/chat/chat_style.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace moe_cli {
namespace {

// https://no-color.org
bool wants_colours() {
  const char* refused = std::getenv("NO_COLOR");
  const char* name = std::getenv("TERM");
  const std::string_view terminal = name == nullptr ? "" : name;
  return isatty(STDERR_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
         !terminal.empty() && terminal != "dumb";
}

}  // namespace

ChatStyle::ChatStyle() : colours_(wants_colours()) {}

void ChatStyle::note(const std::string& text) const {
  const Faint faint(*this);
  std::cerr << "moe: " << text << "\n";
}

// Past std::cerr, which would spell them out.
void ChatStyle::begin_faint() const {
  if (colours_) std::fputs("\033[2m", stderr);
}

void ChatStyle::end_faint() const {
  if (colours_) std::fputs("\033[0m", stderr);
}

}  // namespace moe_cli
