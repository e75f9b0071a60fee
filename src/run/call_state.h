// SPDX-License-Identifier: MIT
#pragma once
// Who uses a session: one call at a time, and cancels of it from any thread.

#include <atomic>
#include <span>

#include "kernels/device.h"

namespace moe {

class Session;

class CallState {
 public:
  /// MOE_ERR_STATE if another call uses the session, or if it is poisoned and `heal` is false.
  Status begin(bool heal);
  void end() { phase_.store(kIdle); }
  /// Makes the call in progress, or the group call that this session is part of, end soon.
  void cancel();
  /// True if the current call has been cancelled.
  bool cancelled() const { return phase_.load(std::memory_order_relaxed) == kCancelled; }
  /// The same for any session of the group.
  bool group_cancelled() const;
  /// MOE_ERR_CANCELLED if cancelled().
  Status check() const;

  /// The call runs on this stream from now on, or on none: returns when no cancel() uses the one
  /// before.
  void run_on(Stream* stream);
  /// Exchanges the session's stream by calling exchange(), which returns the new one. Cancels
  /// meanwhile have no effect.
  template <class Exchange>
  void move_to(Exchange&& exchange) {
    const int phase = phase_.exchange(kMoving);
    run_on(nullptr);
    run_on(exchange());
    phase_.store(phase);
  }

  /// Leads a call of several sessions, whose cancels then end this one.
  void lead_group(std::span<Session* const> group);
  /// Ends a group call for this session: first of all for the one that leads it.
  void leave_group();
  std::span<Session* const> group() const { return group_; }

  /// A wait for a workspace was ended by `stop`, though nobody has cancelled this call: a cancel()
  /// of an earlier one came late.
  void forget_late_stop();

  std::atomic<bool> stop{false};  // set by cancel(): ends a wait for a workspace
  bool poisoned = false;          // it met a device fault

 private:
  enum Phase : int { kIdle, kRunning, kCancelled, kMoving };
  void wait_for_cancels() const;

  std::atomic<int> phase_{kIdle};
  std::atomic<int> cancels_{0};            // calls of cancel() in progress
  std::atomic<Stream*> running_{nullptr};  // for cancel()
  std::span<Session* const> group_;        // of a group call that this session leads
  std::atomic<CallState*> lead_{nullptr};  // of a group call of others; null: itself
};

}  // namespace moe
