#pragma once
// The matrices that attention on the latent of keys and values wants (struct LatentHeads), made of
// those in the file: of a head's keys turned over, of its values alone, in f16.

#include "src/model/model.h"

namespace moe {

class LatentMatrices {
 public:
  explicit LatentMatrices(const Allocator& allocator) : matrices_(allocator), first_(allocator) {}
  LatentMatrices(const LatentMatrices&) = delete;
  LatentMatrices& operator=(const LatentMatrices&) = delete;
  ~LatentMatrices() {
    if (memory_ != nullptr) device_->free(memory_, bytes_);
  }

  /// Once. Every layer with attention has a latent, and its weights are there. MOE_ERR_UNSUPPORTED
  /// for a layer whose keys are more than the rotary part and, behind it, products of the latent,
  /// or with a weight that f16 does not hold.
  Status init(Device& device, const ModelConfig& config, const Array<LayerWeights>& layers,
              const Allocator& allocator);
  /// What init() takes at most, and so while it runs.
  static uint64_t bytes(const ModelConfig& config);

  /// (n_kv_heads), both.
  const Matrix* keys(int32_t layer) const { return of(layer); }
  const Matrix* values(int32_t layer) const { return of(layer) + (of(layer + 1) - of(layer)) / 2; }

 private:
  Status add_layer(const AttentionConfig& config, const AttentionWeights& weights, float* scratch,
                   uint8_t** at);
  const Matrix* of(int32_t layer) const {
    return matrices_.data() + first_[static_cast<size_t>(layer)];
  }

  Array<Matrix> matrices_;  // of a layer: keys, then values
  Array<size_t> first_;     // (n_layers + 1)
  Device* device_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace moe
