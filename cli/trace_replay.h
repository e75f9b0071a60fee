#pragma once
// What an expert cache of a given size would have found, from a trace alone.

#include "cli/trace_file.h"

namespace moe_cli {

/// Of decoding; the prompt's experts were there before it, as far as there is room.
struct Replay {
  uint64_t n_uses = 0;
  uint64_t n_hits = 0;
  double share() const {
    return n_uses == 0 ? 0 : static_cast<double>(n_hits) / static_cast<double>(n_uses);
  }
};

/// Evicts the least recently used expert. `room`: experts of all layers together.
Replay replay_lru(const Trace& trace, size_t room);
/// Of each use, of the prompt too, whether its expert is there.
std::vector<bool> found_lru(const Trace& trace, size_t room);
/// Evicts the expert whose next use is farthest away (Belady): no cache can find more.
Replay replay_best(const Trace& trace, size_t room);
/// Uses of decoding that are the first of their expert: no cache of any size finds them.
uint64_t first_uses(const Trace& trace);

}  // namespace moe_cli
