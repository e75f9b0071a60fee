// SPDX-License-Identifier: MIT
#pragma once
// The machine and this process: memory, CPUs, and what else the system says of them.

#include <cstdint>

namespace moe {

struct MachineMemory {
  uint64_t total = 0;      // of the machine, or of a memory cgroup if that is smaller
  uint64_t available = 0;  // available without swapping; the page cache counts as free
  /// A program may plan with these bytes: the rest is for what no account counts.
  uint64_t budget() const { return available / 16 * 15; }
};

/// False if the system does not report it. `root` is prepended to /proc and /sys; not empty only in
/// tests.
bool machine_memory(MachineMemory* out, const char* root = "");

/// The CPUs of the affinity mask, or fewer if the quota of a control group is smaller; at least 1.
/// `root` as above.
int usable_cpus(const char* root = "");

/// Differs in a forked child.
int process_id();

/// Bits for names that must differ between processes; they need not be secret.
uint64_t random_bits();

/// Features of a 64-bit Arm CPU, which only the system can tell; none on other CPUs.
struct ArmFeatures {
  bool dotprod = false;  // the dot product of Armv8.2
  bool i8mm = false;     // the int8 matrix products of Armv8.6
};
ArmFeatures arm_features();

/// Asks the system for AMX tile registers, permanently for the whole process: alternate signal
/// stacks must then have room for them. False if an existing one does not.
bool request_tile_registers();

}  // namespace moe
