// SPDX-License-Identifier: MIT
#pragma once
// moe perplexity --sweep: one text under many routings.

#include "cli/common.h"

namespace moe_cli {

/// One parameter of a router, "threshold=0.1:1:0.1", and the values that it takes.
struct Sweep {
  std::string name;
  std::vector<std::string> values;  // as in a router's text
};

/// Throws UsageError.
Sweep parse_sweep(const std::string& text);

/// The router `base` ("": the file's) with this value. Throws UsageError if `base` sets it too.
std::string swept_router(const std::string& base, const Sweep& sweep, size_t i);

/// The cost of a token in experts, over all MoE layers.
struct ExpertCost {
  double experts = 0;  // per (sub-)token, mean over the layers
  double flops = 0;    // per token
};

/// `layers`: routing_json() of the same model.
ExpertCost expert_cost(const moe_model* model, const Json& layers);

}  // namespace moe_cli
