// SPDX-License-Identifier: MIT
#pragma once
// pthread mutex and condition variable (std::mutex can throw).

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace moe {

class Mutex {
 public:
  Mutex() { pthread_mutex_init(&mutex_, nullptr); }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() { pthread_mutex_destroy(&mutex_); }
  void lock() { pthread_mutex_lock(&mutex_); }
  bool try_lock() { return pthread_mutex_trylock(&mutex_) == 0; }
  void unlock() { pthread_mutex_unlock(&mutex_); }
  pthread_mutex_t* native() { return &mutex_; }

 private:
  pthread_mutex_t mutex_;
};

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
  Condition();
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  // Not destroyed: it owns no resources, and in a forked child pthread_cond_destroy would wait for
  // threads of the parent.
  void wait(Mutex& held) { pthread_cond_wait(&condition_, held.native()); }
  /// The same, but returns soon after `stop` becomes true, without a notification: signal handlers
  /// may set it. `stop` may be null. Notifiers must hold the mutex.
  void wait_unless(Mutex& held, const std::atomic<bool>* stop);
  void notify_all() {
    n_notified_.fetch_add(1, std::memory_order_relaxed);
    pthread_cond_broadcast(&condition_);
  }

 private:
  pthread_cond_t condition_;
  std::atomic<uint32_t> n_notified_{0};
};

}  // namespace moe
