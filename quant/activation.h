// SPDX-License-Identifier: MIT
#pragma once
// Definition of int8 activations (The Era of 1-bit LLMs: Training Tips, Code and FAQ, figures 3 and
// 4). Kernels quantise with act_scale() and produce the same codes. Plain C headers only.

#include "quant/format.h"
#include "quant/half.h"

namespace moe {

struct ActScale {
  float to_code;  // code = round_half_even(x * to_code), clipped
  float scale;    // x ~ code * scale; NaN if x contains NaN or infinity
};

/// Scale of inputs whose largest magnitude has these float bits: 127 / max(amax, 1e-5).
MOE_INLINE ActScale act_scale(int32_t amax_bits) {
  if (amax_bits >= 0x7F800000) return {0.0f, bits_to_f32(0x7FC00000u)};
  float amax = bits_to_f32(static_cast<uint32_t>(amax_bits));
  if (!(amax > 1e-5f)) amax = 1e-5f;
  return {127.0f / amax, amax / 127.0f};
}

/// Codes of n inputs with one scale, clipped to [lowest, 127]; lowest is -128 (a8) or -127
/// (a8_block, a8_group). Inputs that are not finite give a NaN scale and undefined codes.
ActScale quantise_activations(const float* x, int64_t n, int lowest, int8_t* codes);

}  // namespace moe
