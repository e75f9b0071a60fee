// SPDX-License-Identifier: MIT
#pragma once
// Simulates expert caches of a given size on a trace.

#include "cli/trace/trace_file.h"

namespace moe_cli {

/// The experts that a trace uses, numbered from 0 by layer and expert. A trace may declare far more
/// than it uses, so nothing has the declared size.
struct NumberedExperts {
  std::vector<size_t> of_use;
  size_t n = 0;
};
NumberedExperts number_experts(const Trace& trace);

/// Results for decoding; the cache starts with the prompt's experts, as far as they fit.
struct Replay {
  uint64_t n_uses = 0;
  uint64_t n_hits = 0;
  double share() const {
    return n_uses == 0 ? 0 : static_cast<double>(n_hits) / static_cast<double>(n_uses);
  }
};

/// Evicts the least recently used expert. `room`: experts of all layers together.
Replay replay_lru(const Trace& trace, size_t room);
/// For each use, including the prompt's, whether its expert is cached.
std::vector<bool> found_lru(const Trace& trace, size_t room);
/// Evicts the expert whose next use is farthest away (Belady): optimal.
Replay replay_best(const Trace& trace, size_t room);
/// Uses while decoding that are the first of their expert: misses for any cache size.
uint64_t first_uses(const Trace& trace);

}  // namespace moe_cli
