// SPDX-License-Identifier: MIT
#pragma once
// Signals that end a server: the first lets it finish its answers, the second does not.

namespace moe_cli {

class StopSignals {
 public:
  /// From now on SIGINT, SIGTERM and SIGHUP are counted, in place of interrupt.h. At most one
  /// object exists.
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Waits for the first.
  void wait() const;
  /// Whether there was a second one. Two within a second are one: `timeout` sends it to the process
  /// and to its group.
  bool again() const;
};

}  // namespace moe_cli
