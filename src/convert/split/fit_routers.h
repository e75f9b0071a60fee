// SPDX-License-Identifier: MIT
#pragma once
// Fits routers that predict from an FFN's input which groups of neurons will be active.

#include <functional>
#include <vector>

#include "src/convert/calibration/source_model.h"

namespace moe {

/// The assignment of one layer's inner neurons to groups.
struct NeuronGroups {
  int32_t layer = 0;
  int32_t n_groups = 0;
  std::vector<int32_t> group;  // of each neuron
};

/// scores = W x + b
struct FittedRouter {
  std::vector<float> weight;  // (n_groups, d_model)
  std::vector<float> bias;    // (n_groups)
  double explained = 0;       // share of the target's variance explained over the text
};

struct RouterFits {
  std::vector<FittedRouter> routers;  // one per NeuronGroups
  double perplexity = 0;              // of the model on the text; 0: an encoder
  uint32_t n_passes = 0;              // over the text
};

/// Runs the dense model of `n_bytes` in `file` over the text. A token's target is the log of each
/// group's share of the squared activations, so that the softmax of the scores is that share; a
/// ridge regression on the FFN's input approximates it. Rows are accumulated as they arrive, for as
/// many layers at a time as `room` (0: half of the free memory) holds, at least one: 4 d_model^2
/// bytes per layer, and as much again while a router is fitted, so 8 d_model^2 for one layer.
/// `look` is called from time to time while routers are fitted, and may throw.
RouterFits fit_routers(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                       const CalibrationText& text, const std::vector<NeuronGroups>& layers,
                       uint64_t room, ThreadPool& pool, const std::function<void()>& look,
                       const ReadingProgress& progress);

}  // namespace moe
