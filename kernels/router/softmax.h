// SPDX-License-Identifier: MIT
#pragma once
// Top-k of a softmax: Switch (k = 1), SMoE, Mixtral, OLMoE, Qwen, Granite, gpt-oss, DeepSeek-V2,
// ERNIE 4.5.

#include "kernels/router/common.h"

namespace moe {

struct SoftmaxRouter {
  static constexpr RouterInfo info = {
      .name = "softmax",
      .text = "topk",
      .bias = true,
      .selection_bias = true,
      .params = kParamK | kParamWeights | kParamChosen | kParamGroups,
      .required = kParamK,
      .selection = RouterOverride::kSelects,
  };

  /// The k largest logits, or the k largest softmax + selection bias; with groups, from the groups
  /// with the largest of these. Weight: softmax over all experts, without the bias, raw or divided
  /// by the sum of the selected, or softmax over the selected; times scale. Returns k.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    const bool biased = in.selection_bias != nullptr;
    const float* key = in.scores;
    if (biased) Team::softmax_all(in.scores, in.n_experts, scratch.p);
    if (biased || r.n_groups > 1) {
      Team::each(in.n_experts, [&](int32_t i) {
        scratch.key[i] = biased ? scratch.p[i] + in.selection_bias[i] : in.scores[i];
      });
      keep_best_groups<Team>(r, in.n_experts, 1, scratch.key, scratch.p);
      key = scratch.key;
    }
    Team::best_first(key, in.n_experts, r.k, scratch.heap, out.expert);
    if (!biased || r.n_groups > 1) Team::softmax_all(in.scores, in.n_experts, scratch.p);
    Team::each(r.k, [&](int32_t j) { out.prob[j] = scratch.p[out.expert[j]]; });
    apply_weight_rule<Team>(r.weights, r.scale, in.scores, r.k, r.k, out);
    return r.k;
  }
};

}  // namespace moe
