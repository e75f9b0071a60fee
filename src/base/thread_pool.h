// SPDX-License-Identifier: MIT
#pragma once
// A fixed set of threads that run one parallel region at a time.

#include <atomic>
#include <type_traits>

#include "src/base/array.h"
#include "src/base/mutex.h"

namespace moe {

/// Threads spin briefly for the next region, then sleep. Results must not depend on the number of
/// threads: if the pool is busy with another session, a region runs on the caller alone.
class ThreadPool final {
 public:
  explicit ThreadPool(const Allocator& allocator) : workers_(allocator) {}
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// Starts n_threads - 1 workers (the caller is the first thread). 0 = usable_cpus().
  Status start(int n_threads);
  int n_threads() const { return n_threads_; }
  /// In a forked child: the workers remained in the parent, so do not wait for them.
  void forget_workers() { workers_.clear(); }

  /// Calls body(context, part, n_threads) once for each part 0 .. n_threads - 1 and returns when
  /// all have returned. An awake thread takes over the part of a thread that is slow to wake, so a
  /// busy machine is slower but never blocks for long.
  void run(void (*body)(void* context, int thread, int n_threads), void* context);

  /// run() for a callable f(int thread, int n_threads).
  template <class F>
  void parallel(F&& f) {
    run([](void* c, int t, int n) { (*static_cast<std::remove_reference_t<F>*>(c))(t, n); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  void work();
  bool take_part(uint32_t generation);
  void sleep_while(uint32_t generation);
  void stop();

  Array<Box<Thread>> workers_;
  int n_threads_ = 1;
  Mutex region_;  // held by the session whose region runs
  Mutex mutex_;   // guards sleeping and waking
  Condition wake_;
  std::atomic<uint64_t> ticket_{0};  // generation of the region << 32 | next part to take
  std::atomic<int> sleepers_{0};
  std::atomic<int> pending_{0};  // parts that have not returned
  std::atomic<bool> stopping_{false};
  void (*body_)(void*, int, int) = nullptr;
  void* context_ = nullptr;
};

/// The part [begin, end) of n items for thread t of n_threads, in multiples of `grain`.
struct Range {
  int64_t begin;
  int64_t end;
};
inline Range split_range(int64_t n, int thread, int n_threads, int64_t grain = 1) {
  const int64_t units = (n + grain - 1) / grain;
  const int64_t begin = units * thread / n_threads * grain;
  const int64_t end = units * (thread + 1) / n_threads * grain;
  return {begin < n ? begin : n, end < n ? end : n};
}

}  // namespace moe
