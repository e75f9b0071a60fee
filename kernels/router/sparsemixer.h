// SPDX-License-Identifier: MIT
#pragma once
// SparseMixer at inference (PhiMoE): top-2, each weight a softmax over the experts near the best.

#include "kernels/router/common.h"

namespace moe {

struct SparsemixerRouter {
  static constexpr RouterInfo info = {
      .name = "sparsemixer",
      .bias = true,
      .params = kParamJitter,
      .takes = 2,
      .min_experts = 2,
  };

  /// Two rounds. With m the largest remaining logit, experts with (m - z) / max(|z|, m) > 2 jitter
  /// are masked; the best's weight is its softmax over the rest. Then the best is removed. Returns
  /// 2.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    Team::best_first(in.scores, in.n_experts, 2, scratch.heap, out.expert);
    for (int32_t round = 0; round < 2; ++round) {
      const int32_t best = out.expert[round];
      const float top = in.scores[best];
      Team::each(in.n_experts, [&](int32_t i) {
        const float z = in.scores[i];
        const float size = ScalarLanes::abs(z);
        const float f = size > top ? size : top;
        const bool taken = round == 1 && i == out.expert[0];
        const bool masked = taken || (top - z) / f > 2.0f * r.jitter;  // 0 / 0 is not masked
        scratch.p[i] = masked ? 0.0f : exp_float(z - top);
      });
      float sum = 0;
      for (int32_t i = 0; i < in.n_experts; ++i) sum += scratch.p[i];
      Team::each(1, [&](int32_t) {
        out.prob[round] = 1.0f / sum;
        out.weight[round] = out.prob[round] * r.scale;
      });
    }
    return 2;
  }
};

}  // namespace moe
