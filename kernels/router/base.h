// SPDX-License-Identifier: MIT
#pragma once
// BASE layers (Lewis et al. 2021) at inference: greedy, without the balanced assignment used in
// training.

#include "kernels/router/common.h"

namespace moe {

struct BaseRouter {
  static constexpr RouterInfo info = {
      .name = "base",
      .takes = 1,
  };

  /// The largest score; weight sigmoid(score), times scale. Returns 1.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch& scratch, const RouterChoice& out) {
    Team::best_first(in.scores, in.n_experts, 1, scratch.heap, out.expert);
    Team::each(1, [&](int32_t) {
      out.prob[0] = sigmoid_float(in.scores[out.expert[0]]);
      out.weight[0] = out.prob[0] * r.scale;
    });
    return 1;
  }
};

}  // namespace moe
