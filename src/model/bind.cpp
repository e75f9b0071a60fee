// SPDX-License-Identifier: MIT
// Writes each matrix, vector and norm of a blob into the field that its row of tensor_rows.h names.
#include "src/model/bind.h"

#include "src/model/tensor_rows.h"

namespace moe {
namespace {

void bind(const TensorRow& row, const BlobMatrix& m, const uint8_t* base, const Norm& like,
          void* owner) {
  uint8_t* const field = static_cast<uint8_t*>(owner) + row.field;
  if (is_matrix(row.kind)) {
    *reinterpret_cast<Matrix*>(field) = view(m, base);
    return;
  }
  const void* const values = base == nullptr ? nullptr : base + m.offset;
  if (row.kind == TensorKind::kIds) {
    *reinterpret_cast<const int32_t**>(field) = static_cast<const int32_t*>(values);
  } else if (is_norm(row.kind)) {
    Norm* const norm = reinterpret_cast<Norm*>(field);
    norm->kind = row.kind == TensorKind::kRmsNorm ? NormKind::kRms : like.kind;
    norm->eps = like.eps;
    norm->weight = static_cast<const float*>(values);
  } else {
    *reinterpret_cast<const float**>(field) = static_cast<const float*>(values);
  }
}

}  // namespace

Norm norm_of(const ModelConfig& config) { return {config.norm, config.norm_eps, nullptr, nullptr}; }

void bind_part(const BlobLayout& layout, Part part, const uint8_t* base, const Norm& like,
               ModelWeights* model, LayerWeights* layer) {
  for (const BlobMatrix& m : layout.matrices) {
    const TensorRow* const row = find_row(part, m.role);
    if (row == nullptr) continue;  // check.cpp rejects these
    void* owner = model;
    if (layer != nullptr) owner = row->of_network() ? static_cast<void*>(&layer->ffn) : layer;
    if (kHasMixers && part == Part::kMixer) owner = layer->mixer;
    bind(*row, m, base, like, owner);
  }
}

void bind_expert(const BlobLayout& layout, const uint8_t* base, const Norm& like, Ffn* out) {
  for (const BlobMatrix& m : layout.matrices) {
    const TensorRow* const row = find_row(Part::kExperts, m.role);
    if (row != nullptr) bind(*row, m, base, like, out + (m.sublayer < 0 ? 0 : m.sublayer));
  }
}

}  // namespace moe
