#pragma once
// Which tensors a configuration needs, and of which shape: what the reader checks a file against,
// and what a writer has to store.

#include "formats/moe/layout.h"
#include "src/model/config.h"

namespace moe {

enum class TensorKind : uint8_t {
  kMatrix,    // any weight format, any activation precision that goes with it
  kF32Input,  // any weight format, f32 activations: routers and gates
  kVector,    // f32, one column
  kIds        // i32, one column
};

struct TensorSpec {
  Role role = Role::kWeight;
  TensorKind kind = TensorKind::kMatrix;
  bool required = true;
  int32_t sublayer = -1;
  int32_t rows = 0;  // 0: d_e of a cosine router, which the file alone knows
  int32_t cols = 1;  // the same
};

/// True when this configuration has such a part; `layer` -1 for those outside layers.
bool has_part(const ModelConfig& config, Part part, int32_t layer);

/// The tensors of one part, in the order in which they are stored. `config` is valid.
Status part_tensors(const ModelConfig& config, Part part, int32_t layer, Array<TensorSpec>* out);

}  // namespace moe
