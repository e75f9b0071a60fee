// SPDX-License-Identifier: MIT
#pragma once
// Binds the matrices of a blob to the fields that the forward pass reads (tensor_rows.h).

#include "formats/moe/layout.h"
#include "src/model/model.h"

namespace moe {

/// The rotation of each width of a model's inputs.
class Rotations {
 public:
  explicit Rotations(const Allocator& allocator) : signs_(allocator), all_(allocator) {}
  /// Once. MOE_ERR_MEMORY.
  Status make(const RotationConfig& config);
  /// Null: RotationConfig::takes() is false.
  const InputRotation* of(int32_t width) const;

 private:
  struct Row {
    int32_t width = 0;  // 0: any
    InputRotation rotation;
  };
  Array<float> signs_;
  Array<Row> all_;
};

/// Kind and eps of the model's norms.
Norm norm_of(const ModelConfig& config);

/// Binds one part of the model or of a layer; `layer`: null for the model. `base`: the blob.
void bind_part(const BlobLayout& layout, Part part, const uint8_t* base, const Norm& like,
               ModelWeights* model, LayerWeights* layer);
/// The same for the rotations of its matrices, after bind_part().
void bind_rotations(const BlobLayout& layout, Part part, const Rotations& rotations,
                    ModelWeights* model, LayerWeights* layer);
/// `out`: one Ffn, or one for each block of an X-MoE stack. `base` null: shapes without pointers.
void bind_expert(const BlobLayout& layout, const uint8_t* base, const Norm& like, Ffn* out);

}  // namespace moe
