// SPDX-License-Identifier: MIT
#pragma once
// Matrices of FP8 (E4M3) codes with their scales in another tensor: DeepSeek-V3's blocks of 128 by
// 128, one scale per output, per expert or in total, MXFP8's powers of two. The experts of a layer
// may be one tensor, as transformers 5 has them in memory.

#include "formats/import/checkpoint.h"

namespace moe {

/// Outputs and inputs per scale; 0: all.
struct Fp8Block {
  int64_t rows = 0;
  int64_t cols = 0;
};

struct Fp8Scheme {
  std::string says;                 // the configuration, as errors name it
  std::vector<const char*> scales;  // endings of their names, alternatives
  std::vector<Fp8Block> blocks;     // each matrix has one of these
};

/// `sides`: two numbers. Throws MOE_ERR_FORMAT.
Fp8Block read_fp8_block(const JsonNode& sides);

/// Replaces each matrix by one tensor of ordinary weights, code * scale. Throws MOE_ERR_NOT_FOUND,
/// MOE_ERR_SHAPE or MOE_ERR_FORMAT if a tensor contradicts the scheme.
void unpack_fp8(Checkpoint* checkpoint, const Fp8Scheme& scheme);

/// The same for quant_method "fp8".
void unpack_fp8_method(Checkpoint* checkpoint, const JsonNode& quantization);

}  // namespace moe
