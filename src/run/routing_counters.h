#pragma once
// Routing statistics of one session, all MoE layers.

#include "src/model/model.h"

namespace moe {

class RoutingCounters {
 public:
  explicit RoutingCounters(const Allocator& allocator) : layers_(allocator), counts_(allocator) {}

  Status init(const ModelConfig& config);
  void clear();
  /// Null for a dense layer.
  RoutingStats* layer(int32_t index) {
    RoutingStats& s = layers_[static_cast<size_t>(index)];
    return s.tokens_per_expert != nullptr ? &s : nullptr;
  }

  static uint64_t bytes(const ModelConfig& config);

 private:
  Array<RoutingStats> layers_;
  Array<uint64_t> counts_;
};

}  // namespace moe
