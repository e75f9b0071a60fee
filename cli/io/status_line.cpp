// SPDX-License-Identifier: MIT
// Rewrites the line in place, and clears it.
#include "cli/io/status_line.h"

#include <unistd.h>

#include <cstdio>

#include "cli/common.h"

namespace moe_cli {

StatusLine::StatusLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

void StatusLine::show(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s ...", text.c_str());
  std::fflush(stderr);
  shown_ = true;
  last_ = now_seconds();
}

void StatusLine::update(const std::string& what, int done, int total) {
  if (!terminal_ || now_seconds() - last_ < 0.5) return;
  show(what + ", " + std::to_string(done) + " of " + std::to_string(total));
}

void StatusLine::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace moe_cli
