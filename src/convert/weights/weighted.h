#pragma once
// Scales of codes that make the squared error small where inputs are large: each square counts as
// much as the mean square of its input, `importance`.

#include <cstdint>
#include <vector>

namespace moe {

/// Codes in [-max_code, max_code] with a scale, which may be smaller than what the largest weight
/// asks for, so that this one is cut. As they come they are one candidate: the error never grows.
void refine_row(const float* w, const float* importance, int32_t n, int max_code, int8_t* codes,
                float* scale);

/// The scale of a ternary matrix, from its weights in pieces.
class TernaryScale {
 public:
  TernaryScale() : bins_(kBins) {}
  void add(const float* w, const float* importance, int32_t n);
  /// The scale whose codes, as ternary_codes() rounds to them, have the smallest error, or
  /// `absmean`.
  double best(double absmean) const;

 private:
  // By the upper half of a float's bits: 128 bins for each power of two.
  static constexpr int kShift = 16;
  static constexpr int kBins = 1 << 15;

  struct Bin {
    double importance = 0;
    double weight = 0;  // importance times magnitude
  };
  std::vector<Bin> bins_;
};

}  // namespace moe
