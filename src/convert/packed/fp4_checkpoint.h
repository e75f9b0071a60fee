// SPDX-License-Identifier: MIT
#pragma once
// Matrices of FP4 (E2M1) codes, two in a byte. NVFP4: 16 inputs share a scale in FP8 (E4M3), and
// the matrix has one more. MXFP4: 32 inputs share a power of two.

#include "formats/import/checkpoint.h"

namespace moe {

/// The tensors that a matrix NAME consists of: NAME and these endings.
struct Fp4Scheme {
  const char* codes;
  const char* global;  // NVFP4's scale of the whole matrix; null: MXFP4 only
  bool divides;        // it divides the others; otherwise multiplies
};

inline constexpr Fp4Scheme kFp4OfCompressedTensors = {".weight_packed", ".weight_global_scale",
                                                      true};
inline constexpr Fp4Scheme kFp4OfQuark = {".weight", nullptr, false};
inline constexpr Fp4Scheme kFp4OfModelOpt = {".weight", ".weight_scale_2", false};

/// `says`: the configuration, as errors name it ("config.json: quantization_config says quark").
/// Replaces each matrix by one tensor NAME.weight of ordinary weights. The type of its scales says
/// which of the two it is. Throws MOE_ERR_NOT_FOUND, MOE_ERR_SHAPE or MOE_ERR_FORMAT if its tensors
/// contradict each other, MOE_ERR_NON_FINITE or MOE_ERR_RANGE for a global scale that is no
/// positive number.
void unpack_fp4(Checkpoint* checkpoint, const Fp4Scheme& scheme, const std::string& says);

}  // namespace moe
