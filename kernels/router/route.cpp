// SPDX-License-Identifier: MIT
// Calls a router for each token of a range, refuses scores that are not finite, and applies
// capacity.
#include "kernels/router/route.h"

#include <algorithm>

#include "src/base/inline.h"

namespace moe {
namespace {

// Index of the first value that is NaN or infinite, or n.
int32_t first_non_finite(const float* v, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    if (!is_finite(v[i])) return i;
  }
  return n;
}

}  // namespace

Status route_tokens(const RouteOp& op, int32_t begin, int32_t end, const RouterScratch& scratch) {
  const RouterInfo& info = router_info(op.config->kind);
  const bool scored = info.scores != RouterScores::kTable;
  const int32_t max_k = op.out->max_k;
  for (int32_t t = begin; t < end; ++t) {
    RouterInput in;
    in.n_experts = op.n_experts;
    in.selection_bias = op.selection_bias;
    if (scored) {
      in.scores = op.scores + static_cast<int64_t>(t) * op.n_experts;
      const int32_t bad = first_non_finite(in.scores, op.n_experts);
      if (bad < op.n_experts) {
        return Status::error(MOE_ERR_NON_FINITE,
                             "router: the score of token %d for expert %d is NaN or infinite", t,
                             bad);
      }
    } else {
      in.table_entry = op.table_entry[t];
    }
    const int64_t at = static_cast<int64_t>(t) * max_k;
    const RouterChoice choice{op.out->expert + at, op.prob + at, op.out->weight + at};
    const int32_t count = info.route(*op.config, in, scratch, choice);
    op.out->count[t] = count;
    for (int32_t j = 0; j < max_k; ++j) op.out->kept[at + j] = j < count;
  }
  return {};
}

void apply_capacity(const RouteOp& op, int32_t begin, int32_t end, int32_t* order, int32_t* used) {
  const RouterConfig& config = *op.config;
  Routing& out = *op.out;
  const int32_t capacity =
      capacity_of(end - begin, op.n_experts, config.gamma, config.min_capacity);
  if (capacity < 0 || end <= begin) return;
  const int64_t max_k = out.max_k;
  std::fill(used, used + op.n_experts, 0);
  for (int32_t rank = 0; rank < max_k; ++rank) {
    int32_t n = 0;
    for (int32_t t = begin; t < end; ++t) {
      if (rank < out.count[t]) order[n++] = t;
    }
    if (config.order == CapacityOrder::kPriority) {
      std::sort(order, order + n, [&](int32_t a, int32_t b) {
        const float pa = op.prob[a * max_k + rank];
        const float pb = op.prob[b * max_k + rank];
        return pa > pb || (pa == pb && a < b);
      });
    }
    for (int32_t i = 0; i < n; ++i) {
      const int64_t at = order[i] * max_k + rank;
      if (used[out.expert[at]]++ < capacity) continue;
      out.kept[at] = 0;
      out.weight[at] = 0;
    }
  }
}

}  // namespace moe
