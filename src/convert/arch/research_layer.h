// SPDX-License-Identifier: MIT
#pragma once
// One layer of the research layout's config.json.

#include <deque>
#include <vector>

#include "src/convert/arch/value_of.h"

namespace moe {

struct ResearchLayer {
  LayerConfig config;
  int32_t cosine_width = 0;  // d_e if the configuration gives it
};

/// `node` is the layer after merging defaults and overrides; `model` has everything except layers.
/// `factors` owns the lists that RopeConfig points to.
ResearchLayer read_research_layer(const JsonNode& node, const ModelConfig& model,
                                  std::deque<std::vector<float>>* factors);

}  // namespace moe
