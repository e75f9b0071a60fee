// SPDX-License-Identifier: MIT
#pragma once
// Activation functions with the clamps of SwiGLU variants, as in
// kernels/cpu/generic/activation.inc.

#include "kernels/activation.h"
#include "kernels/cuda/platform.h"

namespace moe::cuda {

/// act(gate) * (up + up_offset) with the config's clamps; `positive` counts act() above 0.
__device__ __forceinline__ float activate_gated(const ActivationConfig& c, float gate, float up,
                                                uint32_t* positive) {
  if (c.limit > 0) {
    gate = c.limit < gate ? c.limit : gate;
    up = up < -c.limit ? -c.limit : up;
    up = c.limit < up ? c.limit : up;
  }
  const float a = activate<ScalarLanes>(c.kind, gate, c.alpha);
  *positive += 0.0f < a ? 1u : 0u;
  return a * (up + c.up_offset);
}

__device__ __forceinline__ float activate_plain(const ActivationConfig& c, float up,
                                                uint32_t* positive) {
  const float a = activate<ScalarLanes>(c.kind, up, c.alpha);
  *positive += 0.0f < a ? 1u : 0u;
  return a;
}

}  // namespace moe::cuda
