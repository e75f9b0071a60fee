// SPDX-License-Identifier: MIT
// Clocks of POSIX.
#include "src/base/os/clock.h"

#include <time.h>

namespace moe {
namespace {

uint64_t monotonic(void*) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Clock system_clock() { return {monotonic, nullptr}; }

int64_t calendar_seconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec);
}

}  // namespace moe
