// SPDX-License-Identifier: MIT
#pragma once
// The cosine router of X-MoE (Chi et al. 2022, Eq. 7 and 8): scores on a low-dimensional sphere.

#include "kernels/router/common.h"

namespace moe {

inline constexpr float kMinTau = 1e-4f;

struct CosineRouter {
  static constexpr RouterInfo info = {
      .name = "cosine",
      .scores = RouterScores::kCosine,
      .params = kParamK | kParamGate | kParamTau | kParamToken | kParamTopkNorm,
      .required = kParamTau,
      .selection = RouterOverride::kByGate,
  };

  /// Scores are cosines s. Selection by s; the weight is softmax(s / tau) over all experts or
  /// sigmoid(s / tau), raw or renormalised. Returns the count.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    const int32_t max_k = r.by_threshold ? threshold_most(r, in.n_experts) : r.k;
    const float tau = r.tau < kMinTau ? kMinTau : r.tau;
    Team::best_first(in.scores, in.n_experts, max_k, scratch.heap, out.expert);
    Team::each(in.n_experts, [&](int32_t i) { scratch.key[i] = in.scores[i] / tau; });
    int32_t count = max_k;
    RouterWeights rule = RouterWeights::kRaw;
    if (r.gate == CosineGate::kSoftmax) {
      Team::softmax_all(scratch.key, in.n_experts, scratch.p);
      Team::each(max_k, [&](int32_t j) { out.prob[j] = scratch.p[out.expert[j]]; });
      if (r.by_threshold) count = threshold_count(r, scratch.p, out.expert, in.n_experts);
      if (gate_renormalises(r)) rule = RouterWeights::kChosen;
    } else {
      Team::each(max_k,
                 [&](int32_t j) { out.prob[j] = sigmoid_float(scratch.key[out.expert[j]]); });
      if (gate_renormalises(r)) rule = RouterWeights::kRenormalised;
    }
    apply_weight_rule<Team>(rule, r.scale, scratch.key, count, max_k, out);
    return count;
  }
};

}  // namespace moe
