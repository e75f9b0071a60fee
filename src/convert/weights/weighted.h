// SPDX-License-Identifier: MIT
#pragma once
// Scales that minimise the squared error weighted by the inputs' mean squares, `importance`.

#include <cstdint>
#include <vector>

namespace moe {

/// Refines codes in [-max_code, max_code] and their scale; a smaller scale may clip the largest
/// weight. The given ones are a candidate: the error never grows.
void refine_row(const float* w, const float* importance, int32_t n, int max_code, int8_t* codes,
                float* scale);

/// Selects the scale of a ternary matrix, from its weights in pieces.
class TernaryScale {
 public:
  TernaryScale() : bins_(kBins) {}
  void add(const float* w, const float* importance, int32_t n);
  /// The scale whose ternary_codes() have the smallest error, or `absmean`.
  double best(double absmean) const;

 private:
  // By the upper half of a float's bits: 128 bins per power of two.
  static constexpr int kShift = 16;
  static constexpr int kBins = 1 << 15;

  struct Bin {
    double importance = 0;
    double weight = 0;  // importance times magnitude
  };
  std::vector<Bin> bins_;
};

}  // namespace moe
