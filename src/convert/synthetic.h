#pragma once
// Models of a named shape with random weights: what a measurement needs, without a download.

#include <string>

#include "formats/moe/writer.h"
#include "src/base/status.h"

namespace moe {

struct SyntheticOptions {
  std::string weights = "ternary2";  // of linear matrices; embedding and head are int8 per row
  int32_t context = 0;               // 0: as the shape says
  uint64_t seed = 0;
};

/// Writes the model and commits the sink. Deterministic. MOE_ERR_NOT_FOUND for an unknown shape,
/// MOE_ERR_ARGUMENT for an unknown format. May throw std::bad_alloc.
Status write_synthetic(const std::string& shape, const SyntheticOptions& options, ModelSink& sink);

/// About how large the file of write_synthetic() will be, or 0 for an unknown shape.
uint64_t synthetic_bytes(const std::string& shape, const SyntheticOptions& options);

}  // namespace moe
