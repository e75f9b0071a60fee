// SPDX-License-Identifier: MIT
// The reference that kernels are compared with: one row of floats to codes and their scale.
#include "quant/activation.h"

#include "quant/rounding.h"

namespace moe {

ActScale quantise_activations(const float* x, int64_t n, int lowest, int8_t* codes) {
  uint32_t amax_bits = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = f32_to_bits(x[i]) & 0x7FFFFFFFu;
    if (bits > amax_bits) amax_bits = bits;
  }
  const ActScale s = act_scale(static_cast<int32_t>(amax_bits));
  for (int64_t i = 0; i < n; ++i) {
    float v = x[i] * s.to_code;
    v = v < 127.0f ? v : 127.0f;
    const float floor = static_cast<float>(lowest);
    v = v > floor ? v : floor;
    codes[i] = static_cast<int8_t>(round_half_even(static_cast<double>(v)));
  }
  return s;
}

}  // namespace moe
