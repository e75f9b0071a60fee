#pragma once
// Memory use of a model under a memory cap. ExpertStats is declared next to ExpertSource.

#include "kernels/expert_source.h"

namespace moe {

/// Memory of a model and its sessions under a memory cap. All zero without a cap.
struct MemoryStats {
  uint64_t cap_bytes = 0;
  uint64_t counted_bytes = 0;  // current total that counts against the cap
  uint64_t peak_bytes = 0;     // maximum of counted_bytes
  uint64_t arena_bytes = 0;    // capacity of the expert cache
  uint64_t expert_bytes = 0;   // experts in it
};

}  // namespace moe
