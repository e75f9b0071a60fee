// SPDX-License-Identifier: MIT
#pragma once
// The kinds of layer parts. Plain C headers only: the files of kernels/cpu/isa include this and
// must not include the C++ library.

#include <stdint.h>

namespace moe {

enum class NormKind : uint8_t { kNone, kRms, kLayer };
enum class QkNorm : uint8_t { kNone, kHead, kWhole };
enum class RopeKind : uint8_t { kNone, kHalf, kInterleaved };
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongrope, kProportional };
/// kF32: also for encoders during one call. kLatent: the latent and rotary part of multi-head
/// latent attention, as f16.
enum class KvType : uint8_t { kF16, kInt8, kF32, kLatent };

constexpr bool is_latent(KvType t) { return t == KvType::kLatent; }

/// Attention sums over keys in blocks of this size, aligned to the absolute position: the same
/// order on every device, and the unit of a KV cache's capacity.
inline constexpr int kKeyBlock = 64;

/// Every activation: value, name, function in kernels/activation.h.
// clang-format off
#define MOE_ACTIVATIONS(EACH)              \
  EACH(kRelu, "relu", relu)                \
  EACH(kGelu, "gelu", gelu)                \
  EACH(kGeluTanh, "gelu_tanh", gelu_tanh)  \
  EACH(kSilu, "silu", silu)                \
  EACH(kRelu2, "relu2", relu2)             \
  EACH(kTanh, "tanh", tanh)
// clang-format on

enum class Activation : uint8_t {
#define MOE_ACTIVATION(value, name, function) value,
  MOE_ACTIVATIONS(MOE_ACTIVATION)
#undef MOE_ACTIVATION
};

/// y = norm(x) * weight + bias over the last axis. kNone: y = x.
struct Norm {
  NormKind kind = NormKind::kNone;
  float eps = 0;
  const float* weight = nullptr;  // (d) or null: 1
  const float* bias = nullptr;    // (d) or null: 0
};

struct ActivationConfig {
  Activation kind = Activation::kSilu;
  float alpha = 1;      // silu only: x * sigmoid(alpha x)
  float limit = 0;      // > 0 and gated: gate = min(gate, limit), up = clamp(up, -limit, limit)
  float up_offset = 0;  // gated: act(gate) * (up + up_offset)
};

}  // namespace moe
