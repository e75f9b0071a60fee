// SPDX-License-Identifier: MIT
#pragma once
// The time: how much has passed, and what the calendar says.

#include <cstdint>

namespace moe {

/// Tells nanoseconds since any moment; never runs backwards. Any thread.
struct Clock {
  uint64_t (*read)(void* user);
  void* user;

  uint64_t nanoseconds() const { return read(user); }
  double seconds() const { return 1e-9 * static_cast<double>(nanoseconds()); }
};

/// The system's; without a system it stands at 0.
Clock system_clock();

/// Seconds since 1970 in UTC; 0 where nothing knows the date.
int64_t calendar_seconds();

}  // namespace moe
