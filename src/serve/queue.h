// SPDX-License-Identifier: MIT
#pragma once
// The two queues of a service have this in common.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "include/moe_c.h"
#include "src/serve/service_request.h"

namespace moe_serve {

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Waits until `done`, or `seconds` are over, below 0 any time. Whether it is done.
template <class F>
bool wait_at_most(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                  double seconds, F&& done) {
  if (seconds < 0) {
    changed.wait(lock, done);
    return true;
  }
  constexpr double kLongest = 1e9;
  return changed.wait_for(lock, std::chrono::duration<double>(std::min(seconds, kLongest)), done);
}

/// The counts of memory and expert cache, if they are known.
inline void read_memory(const moe_session* session, moe_service_stats& stats) {
  auto memory = MOE_INIT(moe_memory_stats);
  moe_error error;
  if (moe_session_get_memory_stats(session, &memory, &error) != MOE_OK) return;
  stats.cap_bytes = memory.cap_bytes;
  stats.counted_bytes = memory.counted_bytes;
  stats.peak_bytes = memory.peak_bytes;
  stats.expert_uses = memory.model.n_uses;
  stats.expert_hits = memory.model.n_hits;
  stats.expert_read_bytes = memory.model.read_bytes;
}

}  // namespace moe_serve
