// SPDX-License-Identifier: MIT
#pragma once
// Ctrl-C and other signals that end a command.

#include <atomic>

#include "include/moe_c.h"

namespace moe_cli {

/// First Ctrl-C: interrupted() becomes true and the current session is cancelled. The second
/// terminates the process as usual. SIGTERM does the same, but may come twice at once (timeout
/// sends it to the process and to its group): only one that comes later ends the process, with the
/// same status.
void watch_interrupts();
/// From now on the first signal ends the process with kExitInterrupted: there is nothing to clean
/// up, and nothing that could be cancelled.
void exit_on_interrupts();
bool interrupted();
/// Resets a Ctrl-C meant for one call. False for another signal.
bool forgive_interrupt();
/// Waits until reading `file` would not wait: a terminal has a line, a pipe bytes, or it has ended.
/// False after Ctrl-C, and when `stop`, if given, is not 0 and wake_reader() was called.
bool wait_for_input(int file, const std::atomic<int>* stop = nullptr);
/// Waits until `file` takes more, or until its reader has gone, which writing reports. False after
/// Ctrl-C.
bool wait_for_output(int file);
/// False after Ctrl-C, which ends the pause.
bool pause_for(int milliseconds);
/// For signal handlers.
void wake_reader();
/// True if reading `file` would not wait.
bool input_arrived(int file);
void set_current_session(moe_session* session);
/// Sets the current session during its lifetime; must be destroyed before the session.
struct CurrentSession {
  explicit CurrentSession(moe_session* session) { set_current_session(session); }
  ~CurrentSession() { set_current_session(nullptr); }
  CurrentSession(const CurrentSession&) = delete;
  CurrentSession& operator=(const CurrentSession&) = delete;
};
/// Throws if Ctrl-C came while no call could be cancelled.
void stop_if_interrupted();

}  // namespace moe_cli
