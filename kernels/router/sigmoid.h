// SPDX-License-Identifier: MIT
#pragma once
// Sigmoid top-k (DeepSeek-V3 and related models).

#include "kernels/router/common.h"

namespace moe {

struct SigmoidRouter {
  static constexpr RouterInfo info = {
      .name = "sigmoid",
      .bias = true,
      .selection_bias = true,
      .params = kParamK | kParamWeights | kParamGroups,
      .required = kParamK,
  };

  /// The k largest logits, or the k largest sigmoid(logit) + selection bias; with groups, from the
  /// groups with the best sum of two. The weight is the sigmoid without the bias, raw or
  /// renormalised, times scale. Returns k.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    const float* key = in.scores;
    if (in.selection_bias != nullptr || r.n_groups > 1) {
      Team::each(in.n_experts, [&](int32_t i) {
        const float bias = in.selection_bias != nullptr ? in.selection_bias[i] : 0.0f;
        scratch.key[i] = sigmoid_float(in.scores[i]) + bias;
      });
      keep_best_groups<Team>(r, in.n_experts, 2, scratch.key, scratch.p);
      key = scratch.key;
    }
    Team::best_first(key, in.n_experts, r.k, scratch.heap, out.expert);
    Team::each(r.k, [&](int32_t j) { out.prob[j] = sigmoid_float(in.scores[out.expert[j]]); });
    apply_weight_rule<Team>(r.weights, r.scale, in.scores, r.k, r.k, out);
    return r.k;
  }
};

}  // namespace moe
