// SPDX-License-Identifier: MIT
#pragma once
// Rotary position embedding: the table of cosines and sines that attention reads.

#include "kernels/kinds.h"
#include "src/base/status.h"

namespace moe {

struct RopeConfig {
  RopeKind kind = RopeKind::kNone;
  int32_t dims = 0;  // the first `dims` of head_dim are rotated; even
  float theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;
  float low_freq_factor = 1;   // llama3
  float high_freq_factor = 4;  // llama3
  float beta_fast = 32;        // yarn
  float beta_slow = 1;         // yarn
  bool truncate = true;        // yarn: correction range rounded to whole dims
  float attention_factor = 0;  // yarn, longrope: multiplies cos and sin; 0: derived
  int32_t original_context = 0;
  const float* short_factor = nullptr;  // longrope: (dims / 2), host memory of the model
  const float* long_factor = nullptr;
  int32_t turning = 0;  // proportional: dims that turn, in pairs from the first on; the others stay
};

/// Checks the fields that the config's kind and scaling use. MOE_ERR_RANGE or MOE_ERR_ARGUMENT,
/// naming the field.
Status validate_rope(const RopeConfig& config);

/// Fills out (context, dims / 2, {cos, sin}) in double precision, rounded once to float. Frequency
/// j is theta^(-2 j / dims) before scaling:
///   linear   divided by factor
///   llama3   divided by factor below low_freq_factor turns in original_context, blended up to
///            high_freq_factor turns
///   yarn     (Peng et al. 2023) blended over the dims between beta_fast and beta_slow turns; both
///            cos and sin times attention_factor (0: 0.1 ln(factor) + 1)
///   longrope (Ding et al. 2024) divided by long_factor[j] where context > original_context, else
///   by
///            short_factor[j]; times attention_factor (0: sqrt(1 + ln(f) / ln(original_context)), f
///            the config's factor or, where that is 1, context / original_context)
///   proportional divided by factor, and 0 for all but the first `turning` / 2 frequencies
/// A position's row does not depend on `context` (longrope's choice apart).
Status build_rope_table(const RopeConfig& config, int32_t context, float* out);

}  // namespace moe
