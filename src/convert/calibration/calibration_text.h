// SPDX-License-Identifier: MIT
#pragma once
// A text in the form the source model reads.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/convert/tokenizer/tokenizer_write.h"
#include "src/model/config.h"

namespace moe {

struct CalibrationText {
  std::vector<int32_t> prefix;  // precedes every window
  std::vector<int32_t> tokens;
};

/// Finds every error in the text: MOE_ERR_UNSUPPORTED for an encoder-decoder, MOE_ERR_ARGUMENT
/// without a tokenizer, for too short a text, and for a safetensors file.
CalibrationText read_calibration_text(std::string_view text, const ModelConfig& config,
                                      const std::optional<TokenizerData>& tokenizer);

}  // namespace moe
