// SPDX-License-Identifier: MIT
#pragma once
// Makes a dense model sparse: each FFN's inner neurons are divided among experts, and a threshold
// router selects them. With all experts it computes the dense model.

#include <map>

#include "src/convert/importer.h"
#include "src/convert/report.h"
#include "src/convert/split/fit_routers.h"
#include "src/convert/split/split_options.h"

namespace moe {

class SplitFfn {
 public:
  /// Checks all preconditions and adds tensors to the checkpoint: routers, zero until fit(), and
  /// for an FFN with an output bias a shared expert that only adds it. MOE_ERR_UNSUPPORTED: there
  /// are experts already, or a norm over all inner neurons; MOE_ERR_ARGUMENT: n_experts does not
  /// divide their number; MOE_ERR_MEMORY: clustering needs too much memory. Both references must
  /// outlive this.
  SplitFfn(const SplitOptions& options, const Imported& dense, Checkpoint& checkpoint);

  /// `imported`: the dense model, imported again. Its FFNs become experts; routers select all of
  /// them (threshold 1), each with weight 1.
  void apply(Imported* imported) const;

  /// Groups the neurons and fits the routers. `file` contains the dense model of `plan` in floats.
  /// `look` is called from time to time except while the text is read, and may throw.
  SplitReport fit(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
                  ThreadPool& pool, const std::function<void()>& look,
                  const ReadingProgress& progress);

 private:
  struct Layer {
    SlotGroup ffn;  // dense
    int32_t d_ff = 0;
    bool gated = false;
    bool output_bias = false;
    // Per expert, ascending.
    std::vector<std::shared_ptr<std::vector<int32_t>>> neurons;
  };
  using Layers = std::map<int32_t, Layer>;

  void add_layer(SlotGroup ffn);
  void put_tensors(int32_t index, const Layer& layer);
  NeuronGroups group_neurons(int32_t index, const Layer& layer, ThreadPool& pool,
                             const std::function<void()>& look) const;
  std::vector<float> first_matrix(const Layer& layer, const std::function<void()>& look) const;

  const SplitOptions options_;
  const Imported& dense_;
  Checkpoint& checkpoint_;
  // Shared with the results of apply().
  std::shared_ptr<Layers> layers_ = std::make_shared<Layers>();
};

}  // namespace moe
