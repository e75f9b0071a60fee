#pragma once
// What router cases and layer cases share.

#include "tests/golden/golden.h"
#include "tests/support/moe_layer.h"

namespace moe::golden {

/// t, gamma, min_capacity of a threshold case.
RouterConfig threshold_config(const Case& c);

/// `capacity`: a plain number of places per expert, in order of arrival; null: none.
void set_arrival_capacity(const Case& c, RouterConfig& config);

/// The case's tau, k, gating ... and matrices, as a layer's router on inputs of width d.
void set_cosine_router(const Case& c, const Tensor& proj, const Tensor& embedding, int32_t d,
                       TestLayer& layer, Outcome& outcome);

/// Experts of one inner unit that give zeros, where only the routing is looked at.
void add_silent_experts(TestLayer& layer);

/// x (T, d) through the layer on every device; shapes are checked first.
LayerRun run_on_all(const TestLayer& layer, const Tensor& x, Devices& devices, Outcome& outcome);

/// counts, capacity, kept (T, N), weights (T, N) and dropped, from slots.
void set_by_expert(int32_t n_tokens, int32_t n_experts, int32_t max_k, const RouterConfig& config,
                   const std::vector<int32_t>& expert, const std::vector<float>& weight,
                   const std::vector<uint8_t>& kept, const std::vector<int32_t>& count,
                   Outcome& outcome);

}  // namespace moe::golden
