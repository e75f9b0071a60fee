// SPDX-License-Identifier: MIT
#pragma once
// Routes many tokens on the host: each token separately, then capacity over a session's tokens.

#include "kernels/device.h"
#include "kernels/router/capacity.h"
#include "kernels/router/table.h"
#include "src/base/status.h"

namespace moe {

/// Inputs and outputs of routing. All pointers of `out` except scores must be set.
struct RouteOp {
  const RouterConfig* config = nullptr;
  const float* scores = nullptr;          // (n_tokens, n_experts); null for RouterScores::kTable
  const float* selection_bias = nullptr;  // (n_experts) or null
  const int32_t* table_entry = nullptr;   // kTable: (n_tokens) experts
  int32_t n_experts = 0;
  Routing* out = nullptr;  // max_k is router_max_k(config)
  float* prob = nullptr;   // (n_tokens, max_k)
};

/// Routes tokens [begin, end). MOE_ERR_NON_FINITE if a score is NaN or infinite.
Status route_tokens(const RouteOp& op, int32_t begin, int32_t end, const RouterScratch& scratch);

/// Applies capacity to tokens [begin, end) of one session in this call: sets kept and weight of
/// refused pairs to 0. Order of service: kPriority: rank, then probability descending, then token;
/// kArrival: rank, then token. Scratch: `order` has end - begin entries, `used` n_experts.
void apply_capacity(const RouteOp& op, int32_t begin, int32_t end, int32_t* order, int32_t* used);

}  // namespace moe
