// SPDX-License-Identifier: MIT
// Hands out a batch of parts to the threads, of which one uses the batch before.
#include "src/convert/weights/in_order.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "src/base/mutex.h"

namespace moe {
namespace {

// The exception of the first of several parts.
class FirstFailure {
 public:
  /// Later than all parts if none failed.
  int64_t part() const { return part_.load(std::memory_order_relaxed); }
  void keep(int64_t part, std::exception_ptr exception) {
    LockGuard guard(mutex_);
    if (this->part() <= part) return;
    part_.store(part, std::memory_order_relaxed);
    exception_ = std::move(exception);
  }
  void rethrow() const {
    if (exception_ != nullptr) std::rethrow_exception(exception_);
  }

 private:
  Mutex mutex_;
  std::atomic<int64_t> part_{INT64_MAX};
  std::exception_ptr exception_;
};

int64_t parts_in_batch(const ThreadPool& pool) {
  return int64_t{kPartsPerThread} * pool.n_threads();
}

}  // namespace

size_t slots_of(const ThreadPool& pool) { return static_cast<size_t>(2 * parts_in_batch(pool)); }

void run_in_order(ThreadPool& pool, const InOrder& work) {
  const bool alone = work.alone || work.n == 1 || pool.n_threads() == 1;
  const int64_t batch = alone ? 1 : parts_in_batch(pool);
  // Slots keep what they hold: one worker fills two, not those of all threads.
  const auto slot = [batch](int64_t part) { return static_cast<size_t>(part % (2 * batch)); };
  std::atomic<bool> wanted{true};  // what is left
  FirstFailure failure;
  // Parts before one that could not be made are still used: these may fail, or want no more.
  const auto n_good = [&] { return std::min(work.n, failure.part()); };
  const auto attempt = [&failure](int64_t part, const auto& f) {
    if (failure.part() < part) return;
    try {
      f();
    } catch (...) {
      failure.keep(part, std::current_exception());
    }
  };
  for (int64_t first = 0; wanted && first < n_good() + batch; first += batch) {
    const int64_t end = std::min(first + batch, n_good());
    const int64_t before = std::max<int64_t>(first - batch, 0);
    const int64_t used = std::min(first, n_good());
    std::atomic<int64_t> next{first - 1};  // that one stands for all that are used
    const auto take = [&](int worker, int) {
      for (int64_t part = next++; part < end || part == first - 1; part = next++) {
        if (part >= first) {
          if (wanted) attempt(part, [&] { work.make(worker, part, slot(part)); });
          continue;
        }
        for (int64_t p = before; p < used && wanted; ++p) {
          attempt(p, [&] { wanted = work.use(p, slot(p)); });
        }
      }
    };
    if (alone) {
      take(0, 1);
    } else {
      pool.parallel(take);
    }
    for (int64_t part = before; part < std::min(used, n_good()); ++part) work.tell(part);
  }
  if (wanted) failure.rethrow();
}

}  // namespace moe
