#pragma once
// Top-k of a softmax: Switch (k = 1), SMoE, Mixtral, OLMoE, Qwen, Granite, gpt-oss.

#include "kernels/router/common.h"

namespace moe {

struct SoftmaxRouter {
  static constexpr RouterInfo info = {
      .name = "softmax",
      .text = "topk",
      .bias = true,
      .params = kParamK | kParamWeights | kParamChosen,
      .required = kParamK,
      .selection = RouterOverride::kSelects,
  };

  /// The k largest logits. Weight: softmax over all experts, raw or divided by the sum of the
  /// chosen, or softmax over the chosen; times scale. Returns k.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    Team::best_first(in.scores, in.n_experts, r.k, scratch.heap, out.expert);
    Team::softmax_all(in.scores, in.n_experts, scratch.p);
    Team::each(r.k, [&](int32_t j) { out.prob[j] = scratch.p[out.expert[j]]; });
    apply_weight_rule<Team>(r.weights, r.scale, in.scores, r.k, r.k, out);
    return r.k;
  }
};

}  // namespace moe
