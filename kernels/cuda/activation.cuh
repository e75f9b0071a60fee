#pragma once
// Activation functions: the operations of kernels/cpu/generic/activation.inc in the same order.

#include "kernels/cuda/platform.h"
#include "kernels/kinds.h"
#include "kernels/math.h"

namespace moe::cuda {

__device__ __forceinline__ float activate(Activation kind, float alpha, float x) {
  switch (kind) {
    case Activation::kRelu:
      return x < 0.0f ? 0.0f : x;
    case Activation::kGelu:
      return 0.5f * x * (1.0f + erf_float(x * 0.70710678118655f));
    case Activation::kGeluTanh: {
      const float cube = 0.044715f * x * x * x;
      return x * sigmoid_float(1.5957691216057f * (x + cube));  // 2 sqrt(2 / pi)
    }
    case Activation::kSilu:
      return x * sigmoid_float(alpha * x);
    case Activation::kRelu2:
      break;
  }
  const float r = x < 0.0f ? 0.0f : x;
  return r * r;
}

/// act(gate) * (up + up_offset) with the config's clamps; `positive` counts act() above 0.
__device__ __forceinline__ float activate_gated(const ActivationConfig& c, float gate, float up,
                                                uint32_t* positive) {
  if (c.limit > 0) {
    gate = c.limit < gate ? c.limit : gate;
    up = up < -c.limit ? -c.limit : up;
    up = c.limit < up ? c.limit : up;
  }
  const float a = activate(c.kind, c.alpha, gate);
  *positive += 0.0f < a ? 1u : 0u;
  return a * (up + c.up_offset);
}

__device__ __forceinline__ float activate_plain(const ActivationConfig& c, float up,
                                                uint32_t* positive) {
  const float a = activate(c.kind, c.alpha, up);
  *positive += 0.0f < a ? 1u : 0u;
  return a;
}

}  // namespace moe::cuda
