// SPDX-License-Identifier: MIT
#pragma once
// The system's threads, locks and condition variables (those of std can throw). Without a system
// there are no threads: nothing starts one, and locks are free.

#include <cstddef>
#include <cstdint>

namespace moe {

/// Room for an object of the system, whose headers no other file includes.
struct alignas(8) SystemObject {
  unsigned char bytes[64];
};

class Mutex {
 public:
  Mutex();
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex();
  void lock();
  bool try_lock();
  void unlock();
  void* native() { return &mutex_; }

 private:
  SystemObject mutex_;
};

/// Wakes waiting threads. Not destroyed: it owns no resources, and in a forked child destroying it
/// would wait for threads of the parent.
class SystemCondition {
 public:
  SystemCondition();
  SystemCondition(const SystemCondition&) = delete;
  SystemCondition& operator=(const SystemCondition&) = delete;
  void wait(Mutex& held);
  /// Returns after `nanoseconds`, below a second, at the latest.
  void wait_for(Mutex& held, uint32_t nanoseconds);
  void notify_all();

 private:
  SystemObject condition_;
};

/// The stack of every thread that the library starts, whatever the system's default is: musl's is
/// 128 KiB, and functions of the caller, which reads of a model may call, run there too.
#if defined(MOE_SANITIZED)  // whose frames are several times as large
inline constexpr size_t kThreadStackBytes = size_t{8} << 20;
#else
inline constexpr size_t kThreadStackBytes = size_t{2} << 20;
#endif

/// One thread.
class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// Runs main(argument), once for each join(). False: the system has no more threads.
  bool start(void (*main)(void*), void* argument);
  void join();
  /// Called by the system's own entry.
  void run() const { main_(argument_); }

 private:
  SystemObject thread_{};
  void (*main_)(void*) = nullptr;
  void* argument_ = nullptr;
};

/// False without a system.
bool system_has_threads();

/// Lets other threads run first.
void yield_thread();

/// Identifies the calling thread among those that are running.
uintptr_t this_thread();

}  // namespace moe
