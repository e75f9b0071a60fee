#pragma once
// How much memory the machine has, and how much of it this process can still take.

#include <cstdint>

namespace moe {

struct MachineMemory {
  uint64_t total = 0;      // of the machine, or of a memory cgroup where that is less
  uint64_t available = 0;  // of these, without swapping: what caches of files hold counts as free
};

/// False where the system does not say. `root` is in front of /proc and /sys; "" but in tests.
bool machine_memory(MachineMemory* out, const char* root = "");

}  // namespace moe
