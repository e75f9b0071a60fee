// SPDX-License-Identifier: MIT
// Waiting for a condition or for a flag that another thread sets without notifying: the flag is
// read every 5 ms.
#include "src/base/mutex.h"

namespace moe {

void Condition::wait_unless(Mutex& held, const std::atomic<bool>* stop) {
  if (stop == nullptr) return wait(held);
  constexpr uint32_t kLook = 5'000'000;  // nanoseconds
  // A wait that timed out misses notifications until it holds the mutex again.
  const uint32_t before = n_notified_.load(std::memory_order_relaxed);
  while (n_notified_.load(std::memory_order_relaxed) == before && !stop->load()) {
    condition_.wait_for(held, kLook);
  }
}

}  // namespace moe
