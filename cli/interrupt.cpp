#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "cli/common.h"

namespace moe_cli {
namespace {

std::atomic<moe_session*> g_session{nullptr};
std::atomic<int> g_interrupted{0};
int g_wake[2] = {-1, -1};  // a pipe: the handler may run on a thread other than the reader

// moe_session_cancel only sets an atomic flag, so it may be called from a signal handler.
void on_interrupt(int signal) {
  const int old_errno = errno;
  g_interrupted = signal;
  moe_session_cancel(g_session.load());
  wake_reader();
  errno = old_errno;
}

}  // namespace

void watch_interrupts() {
  if (g_wake[0] < 0 && pipe2(g_wake, O_NONBLOCK | O_CLOEXEC) != 0) {
    throw CallError(MOE_ERR_IO, std::string("pipe: ") + std::strerror(errno));
  }
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second Ctrl-C ends the process
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A closing terminal sends it more than once, and nohup ignores it.
  action.sa_flags = 0;
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit then fails in write()
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
  const auto stopped = [&] { return interrupted() || (stop != nullptr && *stop != 0); };
  pollfd files[] = {{file, POLLIN, 0}, {g_wake[0], POLLIN, 0}};
  while (!stopped() && files[0].revents == 0) {
    if (poll(files, 2, -1) < 0 && errno != EINTR) return true;  // reading reports the error
    // A byte may be from an already forgiven Ctrl-C. A current one set its flag before writing.
    for (char bytes[64]; read(g_wake[0], bytes, sizeof bytes) > 0;) {
    }
  }
  return !stopped();
}

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
