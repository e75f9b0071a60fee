// SPDX-License-Identifier: MIT
// Signal handlers that cancel the session in progress (a second Ctrl-C, or a later SIGTERM, ends
// the process at once), and waits that a signal ends.
#include "cli/io/interrupt.h"

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

namespace moe_cli {
namespace {

std::atomic<moe_session*> g_session{nullptr};
std::atomic<int> g_interrupted{0};
std::atomic<int64_t> g_asked{0};  // time of the first SIGTERM, in milliseconds; 0: none yet
int g_wake[2] = {-1, -1};         // a pipe: the handler may run on a thread other than the reader

// moe_session_cancel only sets an atomic flag, so it may be called from a signal handler.
void on_interrupt(int signal) {
  const int old_errno = errno;
  g_interrupted = signal;
  moe_session_cancel(g_session.load());
  wake_reader();
  errno = old_errno;
}

constexpr int64_t kSameSignal = 1000;  // milliseconds

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000 + 1;
}

void on_termination(int signal) {
  const int64_t now = milliseconds();
  int64_t first = 0;
  if (!g_asked.compare_exchange_strong(first, now) && now - first > kSameSignal) {
    _exit(kExitInterrupted);  // the first one did not end it
  }
  on_interrupt(signal);
}

void exit_at_once(int) { _exit(kExitInterrupted); }

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// nohup ignores it.
void handle_hangup(void (*handler)(int)) {
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) handle(SIGHUP, handler, 0);
}

// Until `file` is ready or has failed, a signal, `stop`, or the time (-1: any).
bool wait_for(int file, short events, const std::atomic<int>* stop, int time) {
  const auto stopped = [&] { return interrupted() || (stop != nullptr && *stop != 0); };
  pollfd files[] = {{file, events, 0}, {g_wake[0], POLLIN, 0}};
  while (!stopped() && files[0].revents == 0) {
    const int n = poll(files, 2, time);
    if (n == 0) break;
    if (n < 0 && errno != EINTR) return true;  // reading or writing reports the error
    // A byte may be from an already forgiven Ctrl-C. A current one set its flag before writing.
    for (char bytes[64]; read(g_wake[0], bytes, sizeof bytes) > 0;) {
    }
  }
  return !stopped();
}

}  // namespace

void watch_interrupts() {
  if (g_wake[0] < 0 && pipe2(g_wake, O_NONBLOCK | O_CLOEXEC) != 0) {
    throw CallError(MOE_ERR_IO, std::string("pipe: ") + std::strerror(errno));
  }
  handle(SIGINT, on_interrupt, static_cast<int>(SA_RESETHAND));  // the second ends the process
  handle(SIGTERM, on_termination, 0);
  handle_hangup(on_interrupt);  // a closing terminal sends it more than once
  signal(SIGXFSZ, SIG_IGN);     // exceeding the file size limit then fails in write()
}

void exit_on_interrupts() {
  handle(SIGINT, exit_at_once, 0);
  handle(SIGTERM, exit_at_once, 0);
  handle_hangup(exit_at_once);
  if (interrupted()) _exit(kExitInterrupted);
}

bool interrupted() { return g_interrupted != 0; }

bool forgive_interrupt() {
  if (g_interrupted != SIGINT) return false;
  g_interrupted = 0;
  watch_interrupts();
  return true;
}

void wake_reader() {
  if (write(g_wake[1], "", 1) < 0) {  // full: it wakes the reader anyway
  }
}

bool wait_for_input(int file, const std::atomic<int>* stop) {
  return wait_for(file, POLLIN, stop, -1);
}

bool wait_for_output(int file) { return wait_for(file, POLLOUT, nullptr, -1); }

bool pause_for(int milliseconds) { return wait_for(-1, 0, nullptr, milliseconds); }

bool input_arrived(int file) {
  pollfd files[] = {{file, POLLIN, 0}};
  return poll(files, 1, 0) != 0;  // reading reports an error
}

void set_current_session(moe_session* session) {
  g_session.store(session);
  if (session != nullptr) stop_if_interrupted();
}

void stop_if_interrupted() {
  if (interrupted()) throw CallError(MOE_ERR_CANCELLED, "interrupted");
}

}  // namespace moe_cli
