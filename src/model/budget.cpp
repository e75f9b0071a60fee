// SPDX-License-Identifier: MIT
// Grants reservations under one lock; if too little is free, the expert cache is asked to shrink.
#include "src/model/budget.h"

#include <algorithm>
#include <cinttypes>

#include "src/base/checked.h"
#include "src/base/format.h"
#include "src/base/os/machine.h"

namespace moe {
namespace {

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace

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
  uint64_t used = 0;
  return bytes_beside(checked_add(reserved(), least_, &used) ? used : UINT64_MAX);
}

uint64_t Budget::free_bytes() const {
  LockGuard guard(mutex_);
  return free_locked();
}

uint64_t Budget::bytes_beside(uint64_t used) const {
  return cap_ == 0 ? UINT64_MAX : cap_ - std::min(cap_, used);
}

uint64_t Budget::last_bytes() const {
  LockGuard guard(mutex_);
  return bytes_beside(reserved());
}

Status Budget::refused(const Claimant& claimant, uint64_t bytes, uint64_t room) const {
  return Status::error(MOE_ERR_BUDGET,
                       "the cap of %" PRIu64 " bytes leaves %" PRIu64 " for %s, needed are %" PRIu64
                       ": %s, or open the model with a larger cap",
                       cap_, room, claimant.who, bytes, claimant.way_out);
}

Status Budget::check(uint64_t total, std::span<const MemoryLine> parts) const {
  if (cap_ == 0 || total <= cap_) return {};
  char sum[256] = "";  // short enough to remain complete after a path
  int used = 0;
  for (const MemoryLine& part : parts) {
    if (part.bytes == 0) continue;
    used += format(sum + used, sizeof sum - static_cast<size_t>(used), "%s%s %.3f",
                   used == 0 ? "" : " + ", part.what, megabytes(part.bytes));
    used = std::clamp(used, 0, static_cast<int>(sizeof sum) - 1);
  }
  return Status::error(MOE_ERR_BUDGET,
                       "the cap of %.3f MB is too small: %" PRIu64 " bytes at least, %.3f MB: %s",
                       megabytes(cap_), total, megabytes(total), sum);
}

Status Budget::reserve(std::initializer_list<Change> changes, const Claimant& claimant) {
  LockGuard guard(mutex_);
  uint64_t before = 0;
  uint64_t after = 0;
  for (const Change& change : changes) {
    if (change.of == nullptr) continue;
    before += change.of->bytes_;
    if (!checked_add(after, change.bytes, &after)) return out_of_memory("session", UINT64_MAX);
  }
  if (after > before && after - before > free_locked()) {
    return refused(claimant, after - before, free_locked());
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
  if (last_ != nullptr) status = last_->fit(bytes_beside(reserved()));
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
