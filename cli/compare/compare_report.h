// SPDX-License-Identifier: MIT
#pragma once
// The result of moe compare as a table and as JSON.

#include <string>

#include "cli/compare/chosen_experts.h"
#include "cli/compare/divergence.h"

namespace moe_cli {

struct Comparison {
  std::string reference;
  std::string model;
  int32_t window = 0;
  size_t n_windows = 0;
  Divergence divergence;
  std::vector<SharedChoices::Layer> layers;  // empty unless both models choose experts
};

Json comparison_json(const Comparison& c);
void print_comparison(const Comparison& c);

/// A model alone, whose log-probabilities were written.
Json perplexity_json(const Estimate& nll);
std::string perplexity_text(const Estimate& nll);

}  // namespace moe_cli
