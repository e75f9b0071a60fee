#pragma once
// A dense model made sparse: each FFN becomes experts that hold its inner neurons between them, and
// a router that takes as many as a threshold says. With all experts it computes what it did before.

#include <map>

#include "src/convert/importer.h"
#include "src/convert/report.h"
#include "src/convert/split/fit_routers.h"
#include "src/convert/split/split_options.h"

namespace moe {

class SplitFfn {
 public:
  /// Finds everything that forbids it, and puts tensors into the checkpoint: routers, zeros until
  /// fit(), and where an FFN has a bias behind it a shared expert that adds this alone.
  /// MOE_ERR_UNSUPPORTED: there are experts already, or a norm over all inner neurons;
  /// MOE_ERR_ARGUMENT: the number does not divide their number; MOE_ERR_MEMORY: clusters of so many
  /// take too much. Both must outlive it.
  SplitFfn(const SplitOptions& options, const Imported& dense, Checkpoint& checkpoint);

  /// `imported`: the dense model, imported anew. Its FFNs become experts, of which routers take all
  /// (threshold 1), each with weight 1.
  void apply(Imported* imported) const;

  /// Groups the neurons and fits the routers. `file` holds the dense model as `plan` says, in
  /// floats. `look` is called now and then except while the text is read, and may throw.
  SplitReport fit(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
                  const std::function<void()>& look, const ReadingProgress& progress);

 private:
  struct Layer {
    SlotGroup ffn;  // dense
    int32_t d_ff = 0;
    bool gated = false;
    bool output_bias = false;
    // Of each expert, ascending.
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
  // Shared with what apply() leaves behind.
  std::shared_ptr<Layers> layers_ = std::make_shared<Layers>();
};

}  // namespace moe
