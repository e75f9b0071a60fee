#pragma once
// Routers that tell from an FFN's input which of its parts will answer.

#include <functional>
#include <vector>

#include "src/convert/calibration/source_model.h"

namespace moe {

/// How the inner neurons of one layer are shared out.
struct NeuronGroups {
  int32_t layer = 0;
  int32_t n_groups = 0;
  std::vector<int32_t> group;  // of each neuron
};

/// scores = W x + b
struct FittedRouter {
  std::vector<float> weight;  // (n_groups, d_model)
  std::vector<float> bias;    // (n_groups)
  double explained = 0;       // share of what the target varies by, over the text
};

struct RouterFits {
  std::vector<FittedRouter> routers;  // one for each NeuronGroups
  double perplexity = 0;              // of the model on the text; 0: of an encoder
  uint32_t n_passes = 0;              // over the text
};

/// Runs the dense model of `n_bytes` that `file` holds over the text. A token's target is the log
/// of each group's share of the squared activations, so that a softmax of scores is that share; a
/// ridge regression on the FFN's input comes closest to it. Rows are summed up as they come, for as
/// many layers at a time as `room` (0: half of the free memory) holds, at least one: 4 d_model^2
/// bytes for each, and as much again while a router is fitted, so 8 d_model^2 for one layer. `look`
/// is called now and then while routers are fitted, and may throw.
RouterFits fit_routers(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                       const CalibrationText& text, const std::vector<NeuronGroups>& layers,
                       uint64_t room, ThreadPool& pool, const std::function<void()>& look,
                       const ReadingProgress& progress);

}  // namespace moe
