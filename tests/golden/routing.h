// SPDX-License-Identifier: MIT
#pragma once
// Shared by router cases and layer cases.

#include "tests/golden/golden.h"
#include "tests/support/ffn_layer.h"

namespace moe::golden {

/// The router of a threshold case: t, gamma, min_capacity.
RouterConfig threshold_config(const Case& c);

/// Sets the case's `capacity`: a number of places per expert, taken in order of arrival; null: no
/// limit.
void set_arrival_capacity(const Case& c, RouterConfig& config);

/// Sets a layer's router on inputs of width d from the case's matrices and parameters (tau, k,
/// gating and so on).
void set_cosine_router(const Case& c, const Tensor& proj, const Tensor& embedding, int32_t d,
                       TestLayer& layer, Outcome& outcome);

/// Adds experts of one inner unit with zero output, for cases that test only the routing.
void add_silent_experts(TestLayer& layer);

/// Runs the layer on x (T, d) on every device, after checking shapes.
LayerRun run_on_all(const TestLayer& layer, const Tensor& x, Devices& devices, Outcome& outcome);

/// Sets the outputs counts, capacity, kept (T, N), weights (T, N) and dropped from routing slots.
void set_by_expert(int32_t n_tokens, int32_t n_experts, int32_t max_k, const RouterConfig& config,
                   const std::vector<int32_t>& expert, const std::vector<float>& weight,
                   const std::vector<uint8_t>& kept, const std::vector<int32_t>& count,
                   Outcome& outcome);

}  // namespace moe::golden
