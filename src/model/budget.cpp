// SPDX-License-Identifier: MIT
// Grants reservations under one lock; if too little is free, the expert cache is asked to shrink.
#include "src/model/budget.h"

#include <algorithm>
#include <cinttypes>

#include "src/base/checked.h"
#include "src/base/os/machine.h"

namespace moe {

uint64_t Reservation::bytes() const {
  LockGuard guard(budget_->mutex_);
  return bytes_;
}

void Reservation::release() {
  if (bytes_ != 0 && !budget_->forked()) budget_->release(bytes_);
  bytes_ = 0;
}

Budget::Budget(uint64_t cap) : cap_(cap), process_(process_id()) {}

bool Budget::forked() const { return process_id() != process_; }

void Budget::set_own_bytes(uint64_t bytes) {
  LockGuard guard(mutex_);
  own_ = bytes;
  count();
}

void Budget::expect(uint64_t least) {
  LockGuard guard(mutex_);
  least_ = least;
}

Status Budget::start(LastTenant& tenant) {
  LockGuard guard(mutex_);
  if (last_ != nullptr) return {};
  last_ = &tenant;
  least_ = tenant.least_bytes();
  const Status status = fit();
  if (!status.ok()) last_ = nullptr;
  return status;
}

void Budget::stop() {
  LockGuard guard(mutex_);
  last_ = nullptr;
}

uint64_t Budget::free_locked() const {
  if (cap_ == 0) return UINT64_MAX;
  uint64_t used = 0;
  return checked_add(reserved(), least_, &used) && used < cap_ ? cap_ - used : 0;
}

uint64_t Budget::free_bytes() const {
  LockGuard guard(mutex_);
  return free_locked();
}

uint64_t Budget::last_bytes() const {
  LockGuard guard(mutex_);
  return cap_ == 0 ? UINT64_MAX : cap_ - std::min(cap_, reserved());
}

Status Budget::reserve(std::initializer_list<Change> changes) {
  LockGuard guard(mutex_);
  uint64_t before = 0;
  uint64_t after = 0;
  for (const Change& change : changes) {
    if (change.of == nullptr) continue;
    before += change.of->bytes_;
    if (!checked_add(after, change.bytes, &after)) return out_of_memory("session", UINT64_MAX);
  }
  if (after > before && after - before > free_locked()) {
    return Status::error(MOE_ERR_BUDGET,
                         "the cap of %" PRIu64 " bytes leaves %" PRIu64 ", needed are %" PRIu64
                         ": free a session, or open the model with a larger cap",
                         cap_, free_locked(), after - before);
  }
  for (const Change& change : changes) {
    if (change.of != nullptr) change.of->bytes_ = change.bytes;
  }
  reserved_ = reserved_ - before + after;
  (void)fit();  // it has memory already, and keeps at least its least
  return {};
}

void Budget::release(uint64_t bytes) {
  LockGuard guard(mutex_);
  reserved_ -= bytes;
  (void)fit();
}

Status Budget::fit() {
  Status status;
  if (last_ != nullptr) status = last_->fit(cap_ - std::min(cap_, reserved()));
  count();
  return status;
}

void Budget::count() {
  peak_ = std::max(peak_, reserved() + (last_ == nullptr ? 0 : last_->bytes()));
}

Budget::Usage Budget::usage() const {
  if (cap_ == 0) return {};
  LockGuard guard(mutex_);
  return {cap_, reserved() + (last_ == nullptr ? 0 : last_->bytes()), peak_};
}

}  // namespace moe
