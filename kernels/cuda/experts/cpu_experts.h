// SPDX-License-Identifier: MIT
#pragma once
// Computes missing experts with few rows on the CPU.

#include "kernels/device.h"
#include "src/base/array.h"

namespace moe::cuda {

/// Maximum pairs of a layer for the CPU: steps of one token or a few.
inline constexpr int32_t kCpuPairs = 32;

/// A stream's experts on the CPU.
class CpuExperts {
 public:
  explicit CpuExperts(const Allocator& allocator) : rows_(allocator) {}
  CpuExperts(const CpuExperts&) = delete;
  CpuExperts& operator=(const CpuExperts&) = delete;
  ~CpuExperts();

  /// Prepares it; immediate if already done. False without a CPU or memory.
  bool open(Device* cpu, const StreamShape& shape);
  /// Memory that open() allocates for a stream of this shape.
  static size_t bytes(const Device& cpu, const StreamShape& shape);

  /// True if the CPU computes the GPU's bits.
  static bool same_bits(const Ffn& ffn);

  /// y (n, d) = the network on rows tokens[i] of x (.., d). `positive` += activations above 0.
  Status compute(const Ffn& ffn, const ActivationConfig& act, const float* x, int32_t d,
                 const int32_t* tokens, int32_t n, float* y, uint64_t* positive);

 private:
  static StreamShape shape_of(const StreamShape& shape);

  Device* cpu_ = nullptr;
  Stream* stream_ = nullptr;
  Array<float> rows_;  // (kCpuPairs, d_model)
};

}  // namespace moe::cuda
