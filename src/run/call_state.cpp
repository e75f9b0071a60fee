// SPDX-License-Identifier: MIT
// Lets one call at a time use a session, and others cancel it.
#include "src/run/call_state.h"

#include "src/base/os/threads.h"
#include "src/run/session_call.h"

namespace moe {
Status CallState::begin(bool heal) {
  int idle = kIdle;
  if (!phase_.compare_exchange_strong(idle, kRunning)) {
    return Status::error(MOE_ERR_STATE, "the session is in use by another call");
  }
  stop.store(false);
  if (phase_.load() == kCancelled) stop.store(true);  // in between
  Stream* const own = running_.load();
  if (own != nullptr) own->cancelled.store(false);
  if (!poisoned || heal) return {};
  end();
  return Status::error(MOE_ERR_STATE, "the session met a device fault; it must be reset first");
}

void CallState::cancel() {
  cancels_.fetch_add(1);  // the stream exists until this is over
  int running = kRunning;
  if (phase_.compare_exchange_strong(running, kCancelled)) {
    CallState* lead = lead_.load();
    if (lead == nullptr) lead = this;
    lead->stop.store(true);
    Stream* const stream = lead->running_.load();
    if (stream != nullptr) stream->cancelled.store(true);
  }
  cancels_.fetch_sub(1);
}

bool CallState::group_cancelled() const {
  bool found = phase_.load() == kCancelled;
  for (const Session* session : group_)
    found = found || SessionCall::of(*session).phase_.load() == kCancelled;
  return found;
}

Status CallState::check() const {
  return cancelled() ? Status::error(MOE_ERR_CANCELLED, "cancelled") : Status();
}

// A cancel() of a group's session uses the stream of the one that leads it. Each takes a few
// instructions.
void CallState::wait_for_cancels() const {
  while (cancels_.load() != 0) yield_thread();
  for (const Session* session : group_) {
    while (SessionCall::of(*session).cancels_.load() != 0) yield_thread();
  }
}

void CallState::run_on(Stream* stream) {
  running_.store(stream);
  if (stream == nullptr) return wait_for_cancels();
  if (group_cancelled()) stream->cancelled.store(true);  // cancel() may have seen no stream
}

void CallState::forget_late_stop() {
  stop.store(false);
  if (group_cancelled()) stop.store(true);
}

void CallState::lead_group(std::span<Session* const> group) {
  group_ = group;
  for (const Session* session : group) {
    CallState& call = SessionCall::of(*session);
    call.lead_.store(this);
    if (call.phase_.load() == kCancelled) stop.store(true);  // before it was led
  }
}

void CallState::leave_group() {
  group_ = {};
  lead_.store(nullptr);
  wait_for_cancels();  // they may use the lead
}

}  // namespace moe
