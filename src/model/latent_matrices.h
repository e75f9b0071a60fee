// SPDX-License-Identifier: MIT
#pragma once
// Matrices for attention on the cached latent (struct LatentHeads), derived from those of the file:
// per head the transposed key projection and the value projection, in f16.

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

  /// Call once. Every layer with attention has a latent, and its weights are loaded.
  /// MOE_ERR_UNSUPPORTED if a layer's keys are not the rotary part followed by projections of the
  /// latent, or if a weight exceeds f16.
  Status init(Device& device, const ModelConfig& config, const Array<LayerWeights>& layers,
              const Allocator& allocator);
  /// Upper bound of init()'s memory, also while it runs.
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

  Array<Matrix> matrices_;  // per layer: keys, then values
  Array<size_t> first_;     // (n_layers + 1)
  Device* device_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace moe
