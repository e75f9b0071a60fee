// SPDX-License-Identifier: MIT
// Reads the routing back and sorts the experts: those at hand first, then those to upload, last
// those that the CPU computes; moves their pairs accordingly.
#include "kernels/cuda/experts/expert_order.h"

#include <algorithm>

namespace moe::cuda {
namespace {

template <class T>
void copy_back(CudaStream& s, T* to, const T* from, size_t n) {
  s.check(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToHost, s.stream),
          "reading the routing back");
}

// True for few tokens and a CPU; the number of pairs is known later.
bool cpu_may_help(FfnCall& call) {
  return call.routing.n_tokens <= kCpuPairs &&
         call.s.cpu_experts.open(call.device.cpu(), call.s.shape);
}

}  // namespace

Status ExpertOrder::open(FfnCall& call) {
  CudaStream& s = call.s;
  const PairLists& pairs = s.scratch.pairs;
  const auto n_experts = static_cast<size_t>(call.op.n_experts);
  cpu_ = cpu_may_help(call);
  copy_back(s, s.routing.n_groups, pairs.n_groups, 1);
  copy_back(s, s.routing.group, pairs.group, n_experts);
  copy_back(s, s.routing.begin, pairs.begin, n_experts + 1);
  if (cpu_) {
    const auto tokens = static_cast<size_t>(call.routing.n_tokens);
    const size_t slots = tokens * static_cast<size_t>(call.routing.max_k);
    copy_back(s, s.routing.token, pairs.token, std::min<size_t>(slots, kCpuPairs));
    copy_back(s, s.routing.x, call.subs, tokens * static_cast<size_t>(call.d_in));
  }
  tokens_ = s.routing.token;
  wait(s);
  MOE_TRY(s.latched);
  const auto n = static_cast<size_t>(*s.routing.n_groups);
  cpu_ = cpu_ && s.routing.begin[n] <= kCpuPairs;
  MOE_TRY(experts_.resize(n));
  MOE_TRY(begin_.resize(n + 1));
  MOE_TRY(found_begin_.resize(n));
  MOE_TRY(moved_.resize(n_experts));
  return sort(call, n);
}

ExpertOrder::Place ExpertOrder::place_of(FfnCall& call, int32_t expert) {
  ExpertSource& source = *call.op.experts;
  if (source.at_hand(expert)) return kAtHand;
  HostExpert host;
  const bool choice = cpu_ && source.on_host(expert, &host) && CpuExperts::same_bits(host.ffn);
  return choice && call.device.rates().on_cpu(host.n_reads) ? kCpu : kUploaded;
}

Status ExpertOrder::sort(FfnCall& call, size_t n) {
  CudaStream& s = call.s;
  const HostRouting& found = s.routing;
  Array<Place> places(call.device.allocator());
  MOE_TRY(places.resize(n));
  for (size_t i = 0; i < n; ++i) places[i] = place_of(call, found.group[i]);
  size_t next = 0;
  bool same = true;
  begin_[0] = 0;
  const auto take = [&](Place place) {
    for (size_t i = 0; i < n; ++i) {
      if (places[i] != place) continue;
      const int32_t e = found.group[i];
      experts_[next] = e;
      found_begin_[next] = found.begin[i];
      moved_[static_cast<size_t>(e)] = begin_[next] - found.begin[i];
      begin_[next + 1] = begin_[next] + found.begin[i + 1] - found.begin[i];
      same = same && next == i;
      ++next;
    }
    return next;
  };
  n_at_hand_ = take(kAtHand);
  n_on_gpu_ = take(kUploaded);
  take(kCpu);
  if (same) return {};
  const int32_t* moved = place_array(s, moved_.data(), moved_.size());
  if (moved == nullptr) return s.latched;
  s.check(move_pairs(s.stream, {call.routing, moved, s.scratch.pairs}), "sorting pairs");
  return s.latched;
}

}  // namespace moe::cuda
