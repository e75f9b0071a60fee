#pragma once
// Experts of few rows that the CPU computes because they are not on the GPU.

#include "kernels/device.h"
#include "src/base/array.h"

namespace moe::cuda {

/// Pairs of a layer up to which the CPU may compute: steps of one token or a few.
inline constexpr int32_t kCpuPairs = 32;

/// What a stream has the CPU do.
class CpuExperts {
 public:
  explicit CpuExperts(const Allocator& allocator) : rows_(allocator) {}
  CpuExperts(const CpuExperts&) = delete;
  CpuExperts& operator=(const CpuExperts&) = delete;
  ~CpuExperts();

  /// Makes it ready, at once when it is. False without a CPU, or without memory.
  bool open(Device* cpu, const StreamShape& shape);
  /// Memory that open() takes for a stream of this shape.
  static size_t bytes(const Device& cpu, const StreamShape& shape);

  /// Whether the CPU gives the GPU's bits.
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
