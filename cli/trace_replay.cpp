#include "cli/trace_replay.h"

#include <set>
#include <utility>

namespace moe_cli {
namespace {

size_t index_of(const Trace& trace, const TraceUse& use) {
  return static_cast<size_t>(use.layer) * static_cast<size_t>(trace.n_experts) +
         static_cast<size_t>(use.expert);
}

size_t n_experts(const Trace& trace) {
  return static_cast<size_t>(trace.n_layers) * static_cast<size_t>(trace.n_experts);
}

// A cache of ranked experts that evicts the lowest rank. kRank(i) is the rank of use i's expert
// from then on.
template <class Rank>
std::vector<bool> replay(const Trace& trace, size_t room, Rank rank) {
  std::vector<bool> found;
  std::set<std::pair<uint64_t, size_t>> cached;  // rank, expert
  std::vector<uint64_t> ranks(n_experts(trace));
  for (size_t i = 0; i < trace.uses.size(); ++i) {
    const size_t expert = index_of(trace, trace.uses[i]);
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
  std::vector<uint64_t> next(n_experts(trace), never);
  for (size_t i = n; i-- > 0;) {
    uint64_t& its = next[index_of(trace, trace.uses[i])];
    after[i] = its;
    its = i;
  }
  return of_decoding(trace, replay(trace, room, [&](size_t i) { return never - after[i]; }));
}

uint64_t first_uses(const Trace& trace) {
  std::vector<bool> seen(n_experts(trace));
  uint64_t n = 0;
  for (const TraceUse& use : trace.uses) {
    const size_t expert = index_of(trace, use);
    n += use.decode && !seen[expert];
    seen[expert] = true;
  }
  return n;
}

}  // namespace moe_cli
