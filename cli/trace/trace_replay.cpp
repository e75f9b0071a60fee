// SPDX-License-Identifier: MIT
// Replays uses against a cache that evicts the least recently used expert, and against the best
// possible one.
#include "cli/trace/trace_replay.h"

#include <algorithm>
#include <set>
#include <utility>

namespace moe_cli {
namespace {

// A cache of ranked experts that evicts the lowest rank. kRank(i) is the rank of use i's expert
// from then on.
template <class Rank>
std::vector<bool> replay(const Trace& trace, size_t room, Rank rank) {
  std::vector<bool> found;
  std::set<std::pair<uint64_t, size_t>> cached;  // rank, expert
  const NumberedExperts experts = number_experts(trace);
  std::vector<uint64_t> ranks(experts.n);
  for (size_t i = 0; i < trace.uses.size(); ++i) {
    const size_t expert = experts.of_use[i];
    found.push_back(cached.erase({ranks[expert], expert}) != 0);
    ranks[expert] = rank(i);
    cached.insert({ranks[expert], expert});
    if (cached.size() > room) cached.erase(cached.begin());
  }
  return found;
}

Replay of_decoding(const Trace& trace, const std::vector<bool>& found) {
  Replay result;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!trace.uses[i].decode) continue;
    ++result.n_uses;
    result.n_hits += found[i];
  }
  return result;
}

}  // namespace

NumberedExperts number_experts(const Trace& trace) {
  std::vector<std::pair<int32_t, int32_t>> used;
  for (const TraceUse& use : trace.uses) used.emplace_back(use.layer, use.expert);
  std::vector<std::pair<int32_t, int32_t>> sorted = used;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  NumberedExperts numbered;
  numbered.n = sorted.size();
  for (const auto& expert : used) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), expert);
    numbered.of_use.push_back(static_cast<size_t>(at - sorted.begin()));
  }
  return numbered;
}

std::vector<bool> found_lru(const Trace& trace, size_t room) {
  return replay(trace, room, [](size_t i) { return uint64_t{i}; });
}

Replay replay_lru(const Trace& trace, size_t room) {
  return of_decoding(trace, found_lru(trace, room));
}

Replay replay_best(const Trace& trace, size_t room) {
  const size_t n = trace.uses.size();
  std::vector<uint64_t> after(n);  // the next use of the same expert; `never` if none
  const uint64_t never = n;
  const NumberedExperts experts = number_experts(trace);
  std::vector<uint64_t> next(experts.n, never);
  for (size_t i = n; i-- > 0;) {
    uint64_t& its = next[experts.of_use[i]];
    after[i] = its;
    its = i;
  }
  return of_decoding(trace, replay(trace, room, [&](size_t i) { return never - after[i]; }));
}

uint64_t first_uses(const Trace& trace) {
  const NumberedExperts experts = number_experts(trace);
  std::vector<bool> used(experts.n);
  uint64_t n = 0;
  for (size_t i = 0; i < trace.uses.size(); ++i) {
    const size_t expert = experts.of_use[i];
    n += trace.uses[i].decode && !used[expert];
    used[expert] = true;
  }
  return n;
}

}  // namespace moe_cli
