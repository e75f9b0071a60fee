#pragma once
// Memory use of a model under a memory cap. ExpertStats is beside ExpertSource, which counts.

#include "kernels/expert_source.h"

namespace moe {

/// What a model and its sessions hold under a memory cap. All zero without a cap.
struct MemoryStats {
  uint64_t cap_bytes = 0;
  uint64_t counted_bytes = 0;  // of everything that counts against the cap, now
  uint64_t peak_bytes = 0;     // the most that this has been
  uint64_t arena_bytes = 0;    // room for experts
  uint64_t expert_bytes = 0;   // of the experts that are in it
};

}  // namespace moe
