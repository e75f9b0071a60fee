#pragma once
// Where the matrices of a model lie in a checkpoint, as data: one row for each name.

#include <initializer_list>
#include <span>
#include <unordered_map>

#include "src/convert/importer.h"

namespace moe {

/// How a matrix (rows, cols), or a vector, lies in its tensor.
struct Place {
  bool stacked = false;      // one slice per expert along the first axis
  int32_t parts = 1;         // the tensor's rows hold so many matrices (a gate and its up)
  int32_t part = 0;          // this one's number
  bool interleaved = false;  // parts take turns row by row; otherwise one follows the other
  bool transposed = false;   // (cols, rows)
  int32_t skipped = 0;       // rows of the tensor in front of the matrix
  int32_t behind = 0;        // and behind it
  Packing packing = Packing::kNone;
};

/// Both names stand for all layers and experts. `slot`: as in the research layout without
/// "layers.L." and with "experts." for "experts.E.". `tensor`: {e} is the expert's number; a slot
/// of a layer has the table's layer prefix in front.
struct TensorName {
  const char* slot;
  const char* tensor;
  Place place = {};
};

class TensorTable {
 public:
  /// `layer_prefix`: in front of the tensors of a layer; {l} is its number, counted from the
  /// model's layer `first_layer` on.
  explicit TensorTable(std::string layer_prefix, int32_t first_layer = 0)
      : layer_prefix_(std::move(layer_prefix)), first_layer_(first_layer) {}

  /// Several rows of one slot are alternatives: the first whose tensor is there is taken. A slot
  /// whose row is here must be there, biases included; one without a row is absent.
  void add(std::span<const TensorName> names);
  /// The row takes the place of those that its slot has.
  void take_only(const TensorName& row) { rows_[row.slot] = {row}; }
  /// Layers' matrices that are U8 in the checkpoint hold four ternary codes a byte, with a scale in
  /// the tensor NAME_scale; `scale_divides`: the matrix is codes / scale.
  void allow_packed_ternary(bool scale_divides);

  /// `n_experts`: of the slot's layer. MOE_ERR_INTERNAL when a slot that is not optional has no
  /// row.
  Source locate(const Checkpoint& checkpoint, int32_t n_experts, const SlotGroup& group,
                const Slot& slot) const;

 private:
  std::string tensor_name(const TensorName& row, const SlotGroup& group) const;

  std::string layer_prefix_;
  int32_t first_layer_;
  std::unordered_map<std::string, std::vector<TensorName>> rows_;
  bool packed_ternary_ = false;
  bool scale_divides_ = false;
};

/// Lets `out` find its slots by the table; its configuration is complete. `checkpoint` must outlive
/// `out`.
void locate_by(TensorTable table, const Checkpoint& checkpoint, Imported* out);

/// Where `encoder` has the layers in front of n_encoder_layers, and what is no layer's.
void locate_by(TensorTable encoder, TensorTable decoder, const Checkpoint& checkpoint,
               Imported* out);

}  // namespace moe
