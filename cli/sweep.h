#pragma once
// moe perplexity --sweep: one text under many routings.

#include "cli/common.h"

namespace moe_cli {

/// One parameter of a router, "threshold=0.1:1:0.1", and the values that it takes.
struct Sweep {
  std::string name;
  std::vector<std::string> values;  // as a router's text has them
};

/// Throws UsageError.
Sweep parse_sweep(const std::string& text);

/// The router of `base` ("" is the file's) with this value. Throws UsageError where `base` says
/// something else of it.
std::string swept_router(const std::string& base, const Sweep& sweep, size_t i);

/// What a token costs in experts, of all MoE layers together.
struct ExpertCost {
  double experts = 0;  // of each (sub-)token, the mean over the layers
  double flops = 0;    // of each token
};

/// `layers`: routing_json() of the same model.
ExpertCost expert_cost(const moe_model* model, const Json& layers);

}  // namespace moe_cli
