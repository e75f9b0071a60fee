// SPDX-License-Identifier: MIT
// Draws the bar with rate and remaining time, at most ten times a second.
#include "cli/io/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <new>
#include <string>

#include "cli/common.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

// Columns of the terminal on stderr.
int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 80;
  return size.ws_col;
}

}  // namespace

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

bool Progress::callback(void* user, uint64_t done, uint64_t total, const char* what) {
  try {
    static_cast<Progress*>(user)->show(done, total, what);
  } catch (const std::bad_alloc&) {  // continue without a bar
  }
  return !interrupted();
}

void Progress::show(uint64_t done, uint64_t total, const char* what) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (!terminal || total == 0) return;
  const double now = now_seconds();
  if (start_ < 0) start_ = now;
  if (now - last_ < 0.1 && done < total) return;
  last_ = now;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double spent = now - start_;
  const double rate = spent > 0 ? static_cast<double>(done) / spent : 0;
  const long left = rate > 0 ? std::lround(static_cast<double>(total - done) / rate) : 0;
  const auto filled = static_cast<size_t>(share * 24);
  const std::string bar = std::string(filled, '#') + std::string(24 - filled, '.');
  const std::string speed = bytes_ ? format_bytes(static_cast<uint64_t>(rate)) + "/s"
                                   : std::to_string(std::lround(rate)) + " tokens/s";
  char line[256];
  std::snprintf(line, sizeof line, "[%s] %3.0f%%  %s  ETA %ld:%02ld  %.40s", bar.c_str(),
                share * 100, speed.c_str(), left / 60, left % 60,
                visible(what == nullptr ? "" : what).c_str());
  std::fprintf(stderr, "\r\033[K%.*s", terminal_width() - 1, line);  // a longer line would wrap
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace moe_cli
