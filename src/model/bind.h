#pragma once
// From the matrices of a blob to the fields that the forward pass reads.

#include "formats/moe/layout.h"
#include "src/model/model.h"

namespace moe {

/// Which norm the model's norms are: kind and eps.
Norm norm_of(const ModelConfig& config);

/// One norm of its own part (roles weight and bias). `base` null: shapes without pointers; so for
/// all.
void bind_norm(const BlobLayout& layout, const uint8_t* base, const Norm& like, Norm* out);
/// roles weight and bias of a matrix.
void bind_weight(const BlobLayout& layout, const uint8_t* base, Matrix* weight, const float** bias);
void bind_attention(const BlobLayout& layout, const uint8_t* base, const Norm& like,
                    AttentionWeights* out);
/// The norm in front, the dense FFN or shared expert, and its gate.
void bind_ffn(const BlobLayout& layout, const uint8_t* base, const Norm& like, LayerWeights* out);
void bind_router(const BlobLayout& layout, const uint8_t* base, LayerWeights* out);
/// `out`: one Ffn, or one for each block of an X-MoE stack.
void bind_expert(const BlobLayout& layout, const uint8_t* base, const Norm& like, Ffn* out);

}  // namespace moe
