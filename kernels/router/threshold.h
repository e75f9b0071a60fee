// SPDX-License-Identifier: MIT
#pragma once
// The threshold router of XMoE (Yang et al. 2024, section 3.2): selects experts until their
// probabilities reach t.

#include "kernels/router/common.h"

namespace moe {

struct ThresholdRouter {
  static constexpr RouterInfo info = {
      .name = "threshold",
      .bias = true,
      .params = kParamThreshold | kParamWeights | kParamChosen,
      .required = kParamThreshold,
      .selection = RouterOverride::kSelects,
  };

  /// Ranked by logits, so that underflowing probabilities are still ordered. Returns the count.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    const int32_t max_k = threshold_most(r, in.n_experts);
    Team::best_first(in.scores, in.n_experts, max_k, scratch.heap, out.expert);
    Team::softmax_all(in.scores, in.n_experts, scratch.p);
    Team::each(max_k, [&](int32_t j) { out.prob[j] = scratch.p[out.expert[j]]; });
    const int32_t count = threshold_count(r, scratch.p, out.expert, in.n_experts);
    apply_weight_rule<Team>(r.weights, r.scale, in.scores, count, max_k, out);
    return count;
  }
};

}  // namespace moe
