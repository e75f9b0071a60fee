// SPDX-License-Identifier: MIT
#pragma once
// Routes rows of scores; plain vectors instead of the library's pointers.

#include <cstdint>
#include <vector>

#include "kernels/router/route.h"
#include "kernels/router/table.h"

namespace moe {

struct Routed {
  Status status;
  int32_t n_tokens = 0;
  int32_t max_k = 0;
  std::vector<int32_t> expert;
  std::vector<float> weight;
  std::vector<float> prob;
  std::vector<uint8_t> kept;
  std::vector<int32_t> count;
};

struct RouteExtras {
  const float* selection_bias = nullptr;
  const int32_t* table_entry = nullptr;
};

inline Routed route_all(const RouterConfig& config, const std::vector<float>& scores,
                        int32_t n_tokens, int32_t n_experts, RouteExtras extras = {}) {
  Routed r;
  r.n_tokens = n_tokens;
  r.status = validate_router(config, n_experts);
  if (!r.status.ok()) return r;
  r.max_k = router_max_k(config, n_experts);
  const size_t slots = static_cast<size_t>(n_tokens) * static_cast<size_t>(r.max_k);
  r.expert.resize(slots, -1);
  r.weight.resize(slots, -1);
  r.prob.resize(slots, -1);
  r.kept.resize(slots, 7);
  r.count.resize(static_cast<size_t>(n_tokens), -1);
  Routing out;
  out.n_tokens = n_tokens;
  out.max_k = r.max_k;
  out.expert = r.expert.data();
  out.weight = r.weight.data();
  out.kept = r.kept.data();
  out.count = r.count.data();
  RouteOp op;
  op.config = &config;
  op.scores = scores.data();
  op.selection_bias = extras.selection_bias;
  op.table_entry = extras.table_entry;
  op.n_experts = n_experts;
  op.out = &out;
  op.prob = r.prob.data();
  const auto n = static_cast<size_t>(n_experts);
  std::vector<float> p(n);
  std::vector<float> key(n);
  std::vector<int32_t> heap(n);
  std::vector<int32_t> used(n);
  std::vector<int32_t> order(slots);
  r.status = route_tokens(op, 0, n_tokens, {p.data(), key.data(), heap.data()});
  if (r.status.ok()) apply_capacity(op, 0, n_tokens, order.data(), used.data());
  return r;
}

}  // namespace moe
