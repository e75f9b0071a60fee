// SPDX-License-Identifier: MIT
#pragma once
// The machine's memory, and how much of it this process can still use.

#include <cstdint>

namespace moe {

struct MachineMemory {
  uint64_t total = 0;      // of the machine, or of a memory cgroup if that is smaller
  uint64_t available = 0;  // available without swapping; the page cache counts as free
  /// The largest automatic cap: the rest is for what the account does not count.
  uint64_t budget() const { return available / 16 * 15; }
};

/// False if the system does not report it. `root` is prepended to /proc and /sys; not empty only in
/// tests.
bool machine_memory(MachineMemory* out, const char* root = "");

}  // namespace moe
