// SPDX-License-Identifier: MIT
#pragma once
// Names of the inputs of a model's matrices. Several matrices may share one input.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/convert/plan.h"

namespace moe {

/// The matrix under which shared inputs are accumulated: a gate uses its up projection's, and
/// queries and keys use the values', except for keys and values of a latent, or, without values,
/// the keys'. Those with norms of their own share none. Always a matrix of the same segment.
/// `layer`: null outside layers.
std::string key_of(const std::string& name, const LayerConfig* layer);

inline bool is_product(const Slot& slot) {
  return slot.kind == SlotKind::kLinear || slot.kind == SlotKind::kVocab;
}

/// Null outside layers.
const LayerConfig* layer_of(const PlannedSegment& segment, const ModelConfig& config);

/// A table that is only looked up.
inline bool is_looked_up(const PlannedSegment& segment, const Slot& slot) {
  return segment.part == Part::kLayerInputs && slot.role == Role::kWeight;
}

/// Calls f(slot, key) for all linear matrices of a segment.
template <class F>
void each_product(const PlannedSegment& segment, const ModelConfig& config, F&& f) {
  const LayerConfig* const layer = layer_of(segment, config);
  for (const PlannedMatrix& m : segment.matrices) {
    if (!is_product(m.slot) || is_looked_up(segment, m.slot)) continue;
    f(m.slot, key_of(m.slot.short_name(), layer));
  }
}

struct InputKey {
  std::string name;
  int32_t n_inputs = 0;
};
/// All inputs of a model, in the order of the file.
std::vector<InputKey> list_inputs(const Plan& plan, const ModelConfig& config);

/// The inputs of the matrices `names` (Slot::short_name()). An embedding has inputs only if it is
/// the head.
std::set<std::string> keys_of(const std::set<std::string>& names, const Plan& plan,
                              const ModelConfig& config);

/// Name under which the same matrix of all experts in a layer is averaged; empty for others.
std::string average_of(const PlannedSegment& segment, const Slot& slot);

/// Segments of one layer stay together, because experts are averaged: the first and the end of
/// those around `segment`.
size_t begin_of_layer(const Plan& plan, size_t segment);
size_t end_of_layer(const Plan& plan, size_t segment);

}  // namespace moe
