// SPDX-License-Identifier: MIT
#pragma once
// Locks for a scope, and waiting that can be cancelled.

#include <atomic>
#include <cstdint>

#include "src/base/os/threads.h"

namespace moe {

class LockGuard {
 public:
  explicit LockGuard(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;
  ~LockGuard() { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

class Condition {
 public:
  void wait(Mutex& held) { condition_.wait(held); }
  /// The same, but returns soon after `stop` becomes true, without a notification: signal handlers
  /// may set it. `stop` may be null. Notifiers must hold the mutex.
  void wait_unless(Mutex& held, const std::atomic<bool>* stop);
  void notify_all() {
    n_notified_.fetch_add(1, std::memory_order_relaxed);
    condition_.notify_all();
  }

 private:
  SystemCondition condition_;
  std::atomic<uint32_t> n_notified_{0};
};

}  // namespace moe
