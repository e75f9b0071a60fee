#pragma once
// How a model under a memory cap gets by.

#include <cstdint>

namespace moe {

/// Experts that operations used. An operation is one MoE layer of one chunk of tokens; it uses an
/// expert once, however many tokens chose it. All zero where every expert stays in memory.
struct ExpertStats {
  uint64_t n_uses = 0;
  uint64_t n_hits = 0;      // of these, experts found in memory
  uint64_t read_bytes = 0;  // of the file, for the others
  uint64_t wait_ns = 0;     // nanoseconds for which sessions waited until they were read
};

/// What a model and its sessions hold under a memory cap. All zero without a cap.
struct MemoryStats {
  uint64_t cap_bytes = 0;
  uint64_t counted_bytes = 0;  // of everything that counts against the cap, now
  uint64_t peak_bytes = 0;     // the most that this has been
  uint64_t arena_bytes = 0;    // room for experts
  uint64_t expert_bytes = 0;   // of the experts that are in it
};

}  // namespace moe
