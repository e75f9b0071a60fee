// SPDX-License-Identifier: MIT
#include "src/base/mutex.h"

#include <time.h>

namespace moe {

Condition::Condition() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&condition_, &attributes);
  pthread_condattr_destroy(&attributes);
}

void Condition::wait_unless(Mutex& held, const std::atomic<bool>* stop) {
  if (stop == nullptr) return wait(held);
  constexpr long kLook = 5'000'000;  // nanoseconds
  constexpr long kSecond = 1'000'000'000;
  // A wait that timed out misses notifications until it holds the mutex again.
  const uint32_t before = n_notified_.load(std::memory_order_relaxed);
  while (n_notified_.load(std::memory_order_relaxed) == before && !stop->load()) {
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += kLook;
    if (until.tv_nsec >= kSecond) {
      until.tv_nsec -= kSecond;
      ++until.tv_sec;
    }
    (void)pthread_cond_timedwait(&condition_, held.native(), &until);
  }
}

}  // namespace moe
