// SPDX-License-Identifier: MIT
#pragma once
// Binds the matrices of a blob to the fields that the forward pass reads (tensor_rows.h).

#include "formats/moe/layout.h"
#include "src/model/model.h"

namespace moe {

/// Kind and eps of the model's norms.
Norm norm_of(const ModelConfig& config);

/// Binds one part of the model or of a layer; `layer`: null for the model. `base`: the blob.
void bind_part(const BlobLayout& layout, Part part, const uint8_t* base, const Norm& like,
               ModelWeights* model, LayerWeights* layer);
/// `out`: one Ffn, or one for each block of an X-MoE stack. `base` null: shapes without pointers.
void bind_expert(const BlobLayout& layout, const uint8_t* base, const Norm& like, Ffn* out);

}  // namespace moe
