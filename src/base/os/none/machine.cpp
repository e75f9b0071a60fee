// SPDX-License-Identifier: MIT
// A machine of which nothing is known but that it runs this program.
#include "src/base/os/machine.h"

namespace moe {

bool machine_memory(MachineMemory*, const char*) { return false; }
int usable_cpus(const char*) { return 1; }
int process_id() { return 1; }
uint64_t random_bits() { return 0; }
ArmFeatures arm_features() { return {}; }
bool request_tile_registers() { return false; }

}  // namespace moe
