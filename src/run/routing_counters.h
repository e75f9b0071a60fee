// SPDX-License-Identifier: MIT
#pragma once
// Statistics of one session, all layers: of the tokens that are part of its text, not of passes
// that were cancelled, failed, or only computed something again. A dense layer has its activations
// alone.

#include "src/model/model.h"

namespace moe {

class RoutingCounters {
 public:
  explicit RoutingCounters(const Allocator& allocator) : layers_(allocator), counts_(allocator) {}

  Status init(const ModelConfig& config);
  void clear() { clear_from(0, 0); }
  const RoutingStats& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }

  /// The counters that the pass in progress adds to.
  RoutingStats* of_pass(int32_t index) {
    return &layers_[layers_.size() / 2 + static_cast<size_t>(index)];
  }
  void begin_pass() { clear_from(counts_.size() / 2, layers_.size() / 2); }
  /// Adds the current pass to the statistics.
  void add_pass();

  static uint64_t bytes(const ModelConfig& config);

 private:
  void clear_from(size_t count, size_t layer);

  // Two each: total and current pass.
  Array<RoutingStats> layers_;
  Array<uint64_t> counts_;
};

}  // namespace moe
