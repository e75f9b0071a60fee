// SPDX-License-Identifier: MIT
#pragma once
// The tensors that a configuration requires, and their shapes: for checking files and for writing
// them. The list is in tensor_rows.h.

#include "formats/moe/layout.h"
#include "src/model/config.h"

namespace moe {

enum class TensorKind : uint8_t {
  kMatrix,    // any weight format with a matching activation precision
  kF32Input,  // any weight format, f32 activations: routers and gates
  kVector,    // f32, one column; also the kinds below
  kBias,      // optional in a file, unlike all others
  kNorm,      // the weight of a norm of the model's kind
  kRmsNorm,   // of an RMSNorm, whatever the model's norm
  kIds        // i32, one column
};

constexpr bool is_norm(TensorKind kind) {
  return kind == TensorKind::kNorm || kind == TensorKind::kRmsNorm;
}
constexpr bool is_matrix(TensorKind kind) {
  return kind == TensorKind::kMatrix || kind == TensorKind::kF32Input;
}

struct TensorSpec {
  Role role = Role::kWeight;
  TensorKind kind = TensorKind::kMatrix;
  bool of_network = false;  // belongs to an expert, the shared expert or a dense FFN
  int32_t sublayer = -1;
  int32_t rows = 0;  // 0: d_e of a cosine router, defined by the file
  int32_t cols = 1;  // the same
  /// In the research layout: the full name, or the part after "layers.L." or the network's prefix.
  const char* name = "";

  bool required() const { return kind != TensorKind::kBias; }
};

/// True if this configuration has such a part; `layer` is -1 outside layers.
bool has_part(const ModelConfig& config, Part part, int32_t layer);

/// The tensors of one part in storage order. `config` is valid.
Status part_tensors(const ModelConfig& config, Part part, int32_t layer, Array<TensorSpec>* out);

}  // namespace moe
