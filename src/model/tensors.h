#pragma once
// Which tensors a configuration needs, and of which shape: what the reader checks a file against,
// and what a writer has to store. The list itself is in tensor_rows.h.

#include "formats/moe/layout.h"
#include "src/model/config.h"

namespace moe {

enum class TensorKind : uint8_t {
  kMatrix,    // any weight format, any activation precision that goes with it
  kF32Input,  // any weight format, f32 activations: routers and gates
  kVector,    // f32, one column; so for those below
  kBias,      // the only kind that a file need not have
  kNorm,      // the weight of a norm of the model's kind
  kRmsNorm,   // of an RMSNorm, whatever the model's are
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
  bool of_network = false;  // of an expert, the shared expert or a dense FFN
  int32_t sublayer = -1;
  int32_t rows = 0;  // 0: d_e of a cosine router, which the file alone knows
  int32_t cols = 1;  // the same
  /// In the research layout: whole, for parts of a layer behind "layers.L.", for networks behind
  /// their own prefix.
  const char* name = "";

  bool required() const { return kind != TensorKind::kBias; }
};

/// True when this configuration has such a part; `layer` -1 for those outside layers.
bool has_part(const ModelConfig& config, Part part, int32_t layer);

/// The tensors of one part, in the order in which they are stored. `config` is valid.
Status part_tensors(const ModelConfig& config, Part part, int32_t layer, Array<TensorSpec>* out);

}  // namespace moe
