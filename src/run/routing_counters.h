// SPDX-License-Identifier: MIT
#pragma once
// Statistics of one session, all layers: of the tokens that are part of its text, not of passes
// that were cancelled, failed, or only computed something again. A dense layer has its activations
// alone.

#include "src/base/carver.h"
#include "src/model/model.h"

namespace moe {

class RoutingCounters {
 public:
  void lay_out(Carver& c, const ModelConfig& config);
  /// Starts counting from zero, or stops.
  void turn(bool on);
  bool on() const { return on_; }
  /// Null when nothing is being counted.
  const RoutingStats* layer(int32_t index) const { return at(static_cast<size_t>(index)); }

  /// The counters that the pass in progress adds to; null when nothing is being counted.
  RoutingStats* of_pass(int32_t index) {
    return at(layers_.size() / 2 + static_cast<size_t>(index));
  }
  /// Neither does anything when nothing is being counted.
  void begin_pass();
  /// Adds the current pass to the statistics.
  void add_pass();

 private:
  RoutingStats* at(size_t index) const { return on_ ? &layers_[index] : nullptr; }
  void clear_from(size_t count, size_t layer);

  // Two each: total and current pass.
  std::span<RoutingStats> layers_;
  std::span<uint64_t> counts_;
  bool on_ = false;
};

}  // namespace moe
