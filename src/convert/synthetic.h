#pragma once
// Models of named shapes with random weights: something to measure and to test without a download.

#include <functional>
#include <string>

#include "formats/moe/writer.h"
#include "src/base/status.h"

namespace moe {

struct SyntheticOptions {
  /// Format of linear matrices; a float format also of embedding and head, which otherwise are
  /// int8.
  std::string weights = "ternary2";
  int32_t context = 0;  // 0: the shape's
  uint64_t seed = 0;    // same seed, same bytes
  /// Bytes made, of how many. False cancels. May be empty.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

/// Into a sink, which is committed. MOE_ERR_NOT_FOUND for an unknown shape, with those that are
/// known; MOE_ERR_CANCELLED.
Status write_synthetic(const std::string& shape, const SyntheticOptions& options, ModelSink& sink);

/// About how large that model's file is; 0 when it cannot be made.
uint64_t synthetic_bytes(const std::string& shape, const SyntheticOptions& options);

}  // namespace moe
