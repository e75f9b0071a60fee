// SPDX-License-Identifier: MIT
// Clocks of Windows.
#include "src/base/os/clock.h"

#include <windows.h>

namespace moe {
namespace {

// Seconds and the rest apart: nanoseconds of many ticks do not fit 64 bits.
uint64_t monotonic(void*) {
  LARGE_INTEGER ticks;
  LARGE_INTEGER per_second;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&per_second);
  const auto n = static_cast<uint64_t>(ticks.QuadPart);
  const auto rate = static_cast<uint64_t>(per_second.QuadPart);
  return n / rate * 1'000'000'000 + n % rate * 1'000'000'000 / rate;
}

}  // namespace

Clock system_clock() { return {monotonic, nullptr}; }

int64_t calendar_seconds() {
  constexpr int64_t kTicks = 10'000'000;       // a second has, of a FILETIME
  constexpr int64_t kTo1970 = 11'644'473'600;  // seconds from 1601
  FILETIME now;
  GetSystemTimeAsFileTime(&now);
  const int64_t ticks = int64_t{now.dwHighDateTime} << 32 | now.dwLowDateTime;
  return ticks / kTicks - kTo1970;
}

}  // namespace moe
