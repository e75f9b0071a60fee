// SPDX-License-Identifier: MIT
// Starts the threads, hands out the parts of a region, and lets threads spin briefly before they
// sleep.
#include "src/base/thread_pool.h"

#include "src/base/os/machine.h"

namespace moe {
namespace {

constexpr int kSpins = 2000;  // up to 0.1 ms: longer than the serial parts of a decode step

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::~ThreadPool() { stop(); }

Status ThreadPool::start(int n_threads) {
  if (n_threads < 0 || n_threads > 1024) {
    return Status::error(MOE_ERR_RANGE, "threads: expected 0..1024, found %d", n_threads);
  }
  if (!workers_.empty()) return Status::error(MOE_ERR_STATE, "thread pool: already started");
  if (n_threads == 0) n_threads = usable_cpus();
  if (n_threads > 1 && !system_has_threads()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "threads: expected 0 or 1, found %d: this build has none (MOE_OS=none)",
                         n_threads);
  }
  MOE_TRY(workers_.reserve(static_cast<size_t>(n_threads)));
  const auto main = [](void* pool) { static_cast<ThreadPool*>(pool)->work(); };
  for (int i = 1; i < n_threads; ++i) {
    Result<Box<Thread>> thread = make_box<Thread>(workers_.allocator());
    if (!thread.ok() || !thread.value()->start(main, this)) {
      stop();
      MOE_TRY(thread.status());
      return Status::error(MOE_ERR_MEMORY, "cannot start thread %d of %d", i + 1, n_threads);
    }
    MOE_TRY(workers_.push(std::move(thread.value())));  // there is room
  }
  n_threads_ = n_threads;
  return {};
}

void ThreadPool::stop() {
  if (workers_.empty()) return;  // the mutex may be locked forever in a forked child
  {
    LockGuard guard(mutex_);
    stopping_.store(true, std::memory_order_release);
    wake_.notify_all();
  }
  for (Box<Thread>& worker : workers_) worker->join();
  workers_.clear();
  stopping_.store(false);
  n_threads_ = 1;
}

// Runs the next part of region `generation`; false if none is left or the region is over.
bool ThreadPool::take_part(uint32_t generation) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (static_cast<uint32_t>(ticket >> 32) != generation) return false;
    if (static_cast<int>(ticket & 0xffffffffu) >= n_threads_) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  body_(context_, static_cast<int>(ticket & 0xffffffffu), n_threads_);
  pending_.fetch_sub(1, std::memory_order_release);
  return true;
}

// Either run() sees this thread among the sleepers, or this thread sees the new region: both sides
// write before they read, with sequential consistency.
void ThreadPool::sleep_while(uint32_t generation) {
  LockGuard guard(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (static_cast<uint32_t>(ticket_.load(std::memory_order_seq_cst) >> 32) == generation &&
         !stopping_.load(std::memory_order_acquire)) {
    wake_.wait(mutex_);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadPool::work() {
  uint32_t seen = 0;
  const auto generation = [this] {
    return static_cast<uint32_t>(ticket_.load(std::memory_order_acquire) >> 32);
  };
  while (true) {
    for (int i = 0; i < kSpins && generation() == seen; ++i) cpu_relax();
    if (generation() == seen) sleep_while(seen);
    if (stopping_.load(std::memory_order_acquire)) return;
    seen = generation();
    while (take_part(seen)) {
    }
  }
}

void ThreadPool::run(void (*body)(void*, int, int), void* context) {
  if (workers_.empty() || !region_.try_lock()) {
    body(context, 0, 1);
    return;
  }
  body_ = body;
  context_ = context;
  pending_.store(n_threads_, std::memory_order_relaxed);
  const auto generation =
      static_cast<uint32_t>((ticket_.load(std::memory_order_relaxed) >> 32) + 1);
  ticket_.store(uint64_t{generation} << 32, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    LockGuard guard(mutex_);
    wake_.notify_all();
  }
  while (take_part(generation)) {
  }
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      cpu_relax();
    } else {
      yield_thread();
    }
  }
  region_.unlock();
}

}  // namespace moe
