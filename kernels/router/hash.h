// SPDX-License-Identifier: MIT
#pragma once
// Hash layers (Roller et al. 2021): the token id determines the expert.

#include "kernels/router/common.h"

namespace moe {

struct HashRouter {
  static constexpr RouterInfo info = {
      .name = "hash",
      .scores = RouterScores::kTable,
      .takes = 1,
  };

  /// The table's expert, weight 1 (times scale). Returns 1.
  template <class Team>
  static MOE_HD_CALL int32_t route(const RouterConfig& r, const RouterInput& in,
                                   const RouterScratch&, const RouterChoice& out) {
    Team::each(1, [&](int32_t) {
      out.expert[0] = in.table_entry;
      out.prob[0] = 1.0f;
      out.weight[0] = r.scale;
    });
    return 1;
  }
};

}  // namespace moe
