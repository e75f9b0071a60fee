// SPDX-License-Identifier: MIT
#pragma once
// Location of a model's matrices in a checkpoint, as data: one row per name.

#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/convert/importer.h"

namespace moe {

/// Placement of a matrix (rows, cols) or vector in its tensor.
struct Place {
  bool stacked = false;      // one slice per expert along the first axis
  int32_t parts = 1;         // matrices in the tensor's rows (a gate and its up)
  int32_t part = 0;          // index of this one
  bool interleaved = false;  // parts alternate row by row; otherwise consecutive
  bool transposed = false;   // (cols, rows)
  int32_t col_parts = 1;     // matrices in the tensor's columns, side by side
  int32_t col_part = 0;      // index of this one
  int32_t skipped = 0;       // rows of the tensor before the matrix
  int32_t behind = 0;        // rows after it
  int32_t taps = 0;          // vectors: of a convolution of each channel, (rows / taps, 1, taps)
  Packing packing = Packing::kNone;
};

/// Names for all layers and experts. `slot`: as in the research layout without "layers.L." and with
/// "experts." for "experts.E.". `tensor`: {e} is the expert's number; slots of a layer are prefixed
/// by the table's layer prefix, except those of Part::kPrediction, where {l} is the layer's number.
struct TensorName {
  const char* slot;
  const char* tensor;
  Place place = {};
};

class TensorTable {
 public:
  /// `layer_prefix`: prefix of a layer's tensors; {l} is its number, counted from the model's layer
  /// `first_layer`.
  explicit TensorTable(std::string layer_prefix, int32_t first_layer = 0)
      : layer_prefix_(std::move(layer_prefix)), first_layer_(first_layer) {}

  /// Several rows of one slot are alternatives: the first existing tensor is used; if none exists,
  /// the first that does in another layer or of another expert is what is missing, otherwise the
  /// first in a module that has other tensors. A slot with a row must exist, including biases; one
  /// without a row is absent.
  void add(std::span<const TensorName> names);
  /// Sets the prefix of a layer's tensors.
  void layers_under(const char* prefix) { layer_prefix_ = prefix; }
  /// Replaces all rows of the slot.
  void take_only(const TensorName& row) { rows_[row.slot] = {row}; }

  /// `n_experts`: of the slot's layer. MOE_ERR_INTERNAL if a required slot has no row.
  Source locate(const Checkpoint& checkpoint, int32_t n_experts, const SlotGroup& group,
                const Slot& slot) const;

 private:
  std::string tensor_name(const TensorName& row, const SlotGroup& group) const;
  bool is_in_any_layer(const Checkpoint& checkpoint, const TensorName& row) const;
  const TensorName& row_of(const Checkpoint& checkpoint, const SlotGroup& group,
                           const std::vector<TensorName>& rows) const;

  std::string layer_prefix_;
  int32_t first_layer_;
  std::unordered_map<std::string, std::vector<TensorName>> rows_;
};

/// Makes `out` locate its slots by the table; its configuration is complete. `checkpoint` must
/// outlive `out`.
void locate_by(TensorTable table, const Checkpoint& checkpoint, Imported* out);

/// `encoder` locates the layers before n_encoder_layers and everything outside layers.
void locate_by(TensorTable encoder, TensorTable decoder, const Checkpoint& checkpoint,
               Imported* out);

}  // namespace moe
