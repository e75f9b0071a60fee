// SPDX-License-Identifier: MIT
// Counts SIGINT, SIGTERM and SIGHUP in a handler, and waits for them.
#include "cli/serve/stop_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "cli/common.h"
#include "cli/io/interrupt.h"

namespace moe_cli {
namespace {

std::atomic<int64_t> g_first{0};  // milliseconds; 0: not yet
std::atomic<bool> g_again{false};
int g_pipe[2] = {-1, -1};

// In milliseconds.
int64_t stop_time() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000 + 1;
}

void count_stop(int) {
  const int old_errno = errno;
  const int64_t now = stop_time();
  int64_t first = 0;
  if (!g_first.compare_exchange_strong(first, now) && now - first > 1000) g_again = true;
  if (write(g_pipe[1], "", 1) < 0) {  // full: it wakes the reader anyway
  }
  errno = old_errno;
}

void count(int signal) {
  struct sigaction action {};
  action.sa_handler = count_stop;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  if (pipe2(g_pipe, O_NONBLOCK | O_CLOEXEC) != 0) {
    throw CallError(MOE_ERR_IO, std::string("pipe: ") + std::strerror(errno));
  }
  count(SIGINT);
  count(SIGTERM);
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) count(SIGHUP);  // nohup ignores it
  signal(SIGPIPE, SIG_IGN);                         // of a client that has gone away
  stop_if_interrupted();                            // before they were handled here
}

void StopSignals::wait() const {
  while (g_first == 0) {
    pollfd file = {g_pipe[0], POLLIN, 0};
    (void)poll(&file, 1, -1);
  }
}

bool StopSignals::again() const { return g_again; }

}  // namespace moe_cli
