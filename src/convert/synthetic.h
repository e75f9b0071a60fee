// SPDX-License-Identifier: MIT
#pragma once
// Models of named shapes with random weights, for measurements and tests without a download.

#include <functional>
#include <string>

#include "formats/moe/writer.h"
#include "src/base/status.h"

namespace moe {

struct SyntheticOptions {
  /// Stores what `moe convert --weights` stores of 16-bit weights.
  std::string weights = "ternary2";
  int32_t context = 0;   // 0: the shape's
  uint64_t seed = 0;     // same seed, same bytes
  bool outline = false;  // holes instead of weights, which cannot be read
  /// Adds a layer that guesses tokens (ModelConfig::n_predictions), with the settings of
  /// like_guessing().
  bool prediction = false;
  /// Bytes written, and the total. False cancels. May be empty.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

/// Writes to a sink, which is committed. MOE_ERR_NOT_FOUND for an unknown shape, listing the known
/// ones; MOE_ERR_CANCELLED.
Status write_synthetic(const std::string& shape, const SyntheticOptions& options, ModelSink& sink);
/// Writes to a file. MOE_ERR_ARGUMENT if it would replace one that is not a model.
Status save_synthetic(const std::string& shape, const SyntheticOptions& options,
                      const std::string& path);

/// Approximate size of that model's file; 0 if it cannot be created.
uint64_t synthetic_bytes(const std::string& shape, const SyntheticOptions& options);

}  // namespace moe
