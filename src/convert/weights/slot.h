// SPDX-License-Identifier: MIT
#pragma once
// Everything that a model of a given configuration stores, in file order: the list that importers
// locate in a checkpoint and the converter processes.

#include <string>
#include <vector>

#include "formats/moe/names.h"
#include "src/model/config.h"

namespace moe {

/// The role of a matrix for its precision.
enum class SlotKind : uint8_t {
  kLinear,  // activations times weights: any format
  kVocab,   // embedding and head: any format
  kExact,   // routers, position embedding, gate of the shared expert: a float format
  kVector,  // norms, biases, sinks: always f32
  kTable    // hash router: i32
};

/// One matrix or vector of the model.
struct Slot {
  Role role = Role::kWeight;
  int32_t sublayer = -1;  // X-MoE stacks: index of the sub-layer
  SlotKind kind = SlotKind::kLinear;
  int32_t rows = 0;
  int32_t cols = 1;       // vectors: 1
  bool optional = false;  // biases: absent if the checkpoint has no such tensor
  bool norm = false;      // the weight of a norm
  bool rotated = false;   // BlobMatrix::rotated, as the checkpoint stores it
  int32_t limit = 0;      // kTable: ids are below this
  std::string name;       // in the research layout: "layers.0.attention.q.weight"

  /// Without ".weight", as in precision patterns and reports.
  std::string short_name() const;
};

/// One segment of the model file.
struct SlotGroup {
  Part part = Part::kEmbedding;
  int32_t layer = -1;
  int32_t expert = -1;
  std::vector<Slot> slots;
};

/// All segments of a validated configuration. `cosine_widths[l]` is d_e of layer l's cosine router
/// (ignored for other layers).
std::vector<SlotGroup> list_slots(const ModelConfig& config,
                                  const std::vector<int32_t>& cosine_widths);

}  // namespace moe
