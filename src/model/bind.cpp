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

void* owner_of(const TensorRow& row, Part part, ModelWeights* model, LayerWeights* layer) {
  if (layer == nullptr) return model;
  if (kHasMixers && part == Part::kMixer) return layer->mixer;
  return row.of_network() ? static_cast<void*>(&layer->ffn) : layer;
}

}  // namespace

Status Rotations::make(const RotationConfig& config) {
  if (config.block == 0) return {};
  size_t n = 0;
  for (const RotationSigns& s : config.signs) n += static_cast<size_t>(s.width);
  MOE_TRY(signs_.resize(n));
  if (config.signs.empty()) MOE_TRY(all_.push({0, {config.block, nullptr}}));
  float* at = signs_.data();
  for (const RotationSigns& s : config.signs) {
    MOE_TRY(all_.push({s.width, {config.block, at}}));
    for (int32_t i = 0; i < s.width; ++i) *at++ = (s.bits[i / 8] >> (i % 8) & 1) != 0 ? -1 : 1;
  }
  return {};
}

const InputRotation* Rotations::of(int32_t width) const {
  for (const Row& row : all_) {
    if (row.width == 0 || row.width == width) return &row.rotation;
  }
  return nullptr;
}

Norm norm_of(const ModelConfig& config) { return {config.norm, config.norm_eps, nullptr, nullptr}; }

void bind_part(const BlobLayout& layout, Part part, const uint8_t* base, const Norm& like,
               ModelWeights* model, LayerWeights* layer) {
  for (const BlobMatrix& m : layout.matrices) {
    const TensorRow* const row = find_row(part, m.role);
    if (row == nullptr) continue;  // check.cpp rejects these
    bind(*row, m, base, like, owner_of(*row, part, model, layer));
  }
}

void bind_rotations(const BlobLayout& layout, Part part, const Rotations& rotations,
                    ModelWeights* model, LayerWeights* layer) {
  for (const BlobMatrix& m : layout.matrices) {
    const TensorRow* const row = find_row(part, m.role);
    if (!m.rotated || row == nullptr) continue;
    void* owner = owner_of(*row, part, model, layer);
    auto* const matrix = reinterpret_cast<Matrix*>(static_cast<uint8_t*>(owner) + row->field);
    matrix->rotation = rotations.of(m.cols);
  }
}

void bind_expert(const BlobLayout& layout, const uint8_t* base, const Norm& like, Ffn* out) {
  for (const BlobMatrix& m : layout.matrices) {
    const TensorRow* const row = find_row(Part::kExperts, m.role);
    if (row != nullptr) bind(*row, m, base, like, out + (m.sublayer < 0 ? 0 : m.sublayer));
  }
}

}  // namespace moe
