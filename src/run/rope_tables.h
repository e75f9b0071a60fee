// SPDX-License-Identifier: MIT
#pragma once
// Cosines and sines of one session, one table for each distinct RoPE configuration of the model.

#include "src/model/model.h"
#include "src/run/device_buffer.h"

namespace moe {

class RopeTables {
 public:
  /// Host memory that describes the tables; before init().
  void lay_out(Carver& c, const ModelConfig& config) { c.take(&tables_, config.n_layers()); }
  Status init(Device& device, const ModelConfig& config, int32_t context,
              const Allocator& allocator);
  /// (context, dims / 2, {cos, sin}), or null if the layer has no rotation.
  const float* table(int32_t layer) const { return tables_[static_cast<size_t>(layer)]; }

  /// Device memory that init() allocates; false on overflow.
  static bool bytes(const ModelConfig& config, int32_t context, uint64_t* out);
  /// Host memory that init() allocates and frees.
  static uint64_t temporary_bytes(const Device& device, const ModelConfig& config, int32_t context);

 private:
  std::span<float*> tables_;
  DeviceBuffer memory_;
};

}  // namespace moe
