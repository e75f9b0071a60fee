// SPDX-License-Identifier: MIT
// Reports of a layer to the host: statistics, and the routing itself.

#include "kernels/cuda/ffn_call.h"
#include "kernels/router/table.h"

namespace moe::cuda {
namespace {

// n_positive, n_tokens, n_dropped, then tokens_per_expert and experts_per_token.
size_t n_counters(const FfnCall& call) { return 4 + 2 * static_cast<size_t>(call.op.n_experts); }

}  // namespace

void begin_counting(FfnCall& call) {
  if (call.op.stats == nullptr) return;
  CudaStream& s = call.s;
  s.check(cudaMemsetAsync(s.scratch.counters, 0, n_counters(call) * sizeof(uint64_t), s.stream),
          "counters");
  call.n_positive = s.scratch.counters;
}

Status add_statistics(FfnCall& call) {
  RoutingStats* stats = call.op.stats;
  CudaStream& s = call.s;
  if (stats == nullptr || !s.live()) return {};
  uint64_t* device = s.scratch.counters;
  const auto experts = static_cast<size_t>(call.op.n_experts);
  if (experts > 0) {
    CountOp count{routing_of(call), call.op.n_experts, device + 3, device + 3 + experts,
                  device + 1};
    s.check(count_routing(s.stream, count), "counting");
  }
  wait(s);
  MOE_TRY(s.latched);
  Array<uint64_t> host(call.device.allocator());
  MOE_TRY(host.resize(n_counters(call)));
  MOE_TRY(call.device.download(host.data(), device, n_counters(call) * sizeof(uint64_t)));
  stats->n_positive += host[0] + call.cpu_positive;
  uint64_t pairs = experts > 0 ? 0 : static_cast<uint64_t>(call.op.n_rows);
  for (size_t e = 0; e < experts; ++e) {
    pairs += host[3 + e];
    if (stats->tokens_per_expert != nullptr) stats->tokens_per_expert[e] += host[3 + e];
  }
  stats->n_activations += pairs * call.activations_per_pair;
  if (experts == 0) return {};
  stats->n_tokens += host[1];
  stats->n_dropped += host[2];
  for (size_t k = 0; k <= experts && stats->experts_per_token != nullptr; ++k) {
    stats->experts_per_token[k] += host[3 + experts + k];
  }
  return {};
}

Status report_routing(FfnCall& call) {
  Routing* out = call.op.routing_out;
  CudaStream& s = call.s;
  if (out == nullptr || !s.live()) return {};
  wait(s);
  MOE_TRY(s.latched);
  const Routing r = routing_of(call);
  out->n_tokens = r.n_tokens;
  out->max_k = r.max_k;
  const size_t tokens = static_cast<size_t>(r.n_tokens);
  const size_t slots = tokens * static_cast<size_t>(r.max_k);
  const auto copy = [&](auto* to, const auto* from, size_t n) {
    return to == nullptr ? Status() : call.device.download(to, from, n * sizeof *to);
  };
  MOE_TRY(copy(out->expert, r.expert, slots));
  MOE_TRY(copy(out->weight, r.weight, slots));
  MOE_TRY(copy(out->kept, r.kept, slots));
  MOE_TRY(copy(out->count, r.count, tokens));
  if (router_info(call.op.router).scores == RouterScores::kTable) return {};
  return copy(out->scores, s.scratch.scores, tokens * static_cast<size_t>(call.op.n_experts));
}

}  // namespace moe::cuda
