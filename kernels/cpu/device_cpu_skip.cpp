// SPDX-License-Identifier: MIT
// Skips experts that are not in memory and would contribute little.

#include <algorithm>

#include "kernels/cpu/device_cpu_ffn.h"
#include "kernels/router/cosine.h"
#include "kernels/router/table.h"

namespace moe {
namespace {

// Calls f(index of the pair) for the active pairs of a token.
template <class F>
void each_kept(const FfnCall& call, int32_t token, F&& f) {
  const int64_t at = static_cast<int64_t>(token) * call.max_k;
  for (int32_t j = 0; j < call.s.count[token]; ++j) {
    if (call.s.kept[at + j] == 0) continue;
    f(at + j);
  }
}

// A hook may have replaced the router's experts.
void find_probabilities(FfnCall& call) {
  CpuStream& s = call.s;
  const RouterConfig& r = call.op.router;
  const int32_t n_experts = call.op.n_experts;
  const float tau = router_info(r).has(kParamTau) ? std::max(r.tau, kMinTau) : 1.0f;
  for (int32_t t = 0; t < call.n_tokens; ++t) {
    const float* scores = s.scores + static_cast<int64_t>(t) * n_experts;
    for (int32_t e = 0; e < n_experts; ++e) s.route_key[e] = scores[e] / tau;
    softmax_all(s.route_key, n_experts, s.route_p);
    each_kept(call, t, [&](int64_t i) { s.prob[i] = s.route_p[s.expert[i]]; });
  }
}

// Marks experts to skip: not in memory, loading would evict another, and no token gives them more
// than `most` or ranks them best. False if there are none.
bool find_skipped(FfnCall& call, float most, float* skipped) {
  CpuStream& s = call.s;
  constexpr float kUnused = -1, kBest = 2;  // distinct from any probability
  std::fill_n(skipped, call.op.n_experts, kUnused);
  for (int32_t t = 0; t < call.n_tokens; ++t) {
    int64_t best = -1;
    each_kept(call, t, [&](int64_t i) {
      if (best < 0 || s.prob[i] > s.prob[best]) best = i;
      skipped[s.expert[i]] = std::max(skipped[s.expert[i]], s.prob[i]);
    });
    if (best >= 0) skipped[s.expert[best]] = kBest;
  }
  bool any = false;
  for (int32_t e = 0; e < call.op.n_experts; ++e) {
    const bool little = skipped[e] >= 0 && skipped[e] <= most;
    const bool skip = little && call.op.experts->would_evict(e);
    skipped[e] = skip ? 1 : 0;
    any = any || skip;
  }
  return any;
}

// If the router normalises weights, it does so over the remaining pairs.
void skip_pairs(FfnCall& call, int32_t token, const float* skipped) {
  CpuStream& s = call.s;
  const RouterConfig& r = call.op.router;
  const bool renormalise =
      router_info(r).has(kParamGate) ? gate_renormalises(r) : divides(r.weights);
  float all = 0;
  float left = 0;
  each_kept(call, token, [&](int64_t i) {
    all += s.weight[i];
    if (skipped[s.expert[i]] == 0) {
      left += s.weight[i];
      return;
    }
    s.kept[i] = 0;
    s.weight[i] = 0;
  });
  if (!renormalise || left == all || left == 0) return;
  each_kept(call, token, [&](int64_t i) { s.weight[i] = s.weight[i] / left * all; });
}

}  // namespace

void skip_missing(FfnCall& call) {
  const float most = call.op.router.resident;
  if (!(most > 0)) return;
  if (call.op.hook.call != nullptr) find_probabilities(call);
  float* skipped = call.s.route_p;
  if (!find_skipped(call, most, skipped)) return;
  for (int32_t t = 0; t < call.n_tokens; ++t) {
    uint64_t n = 0;
    double probability = 0;
    each_kept(call, t, [&](int64_t i) {
      if (skipped[call.s.expert[i]] == 0) return;
      ++n;
      probability += static_cast<double>(call.s.prob[i]);
    });
    skip_pairs(call, t, skipped);
    RoutingStats* const stats = call.stats_of_token(t);
    if (stats == nullptr) continue;
    stats->n_skipped += n;
    stats->n_dropped -= n;  // what is no longer kept will count as dropped
    stats->skipped_probability += probability;
  }
}

}  // namespace moe
