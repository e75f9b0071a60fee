// SPDX-License-Identifier: MIT
#pragma once
// Error feedback: later weights compensate for the rounding error of earlier ones (Frantar et al.
// 2022, GPTQ; Chee et al. 2023, QuIP, section 3).
//
// With the moments H = R R^T, R upper triangular, an error e of a row of weights costs e H e^T = |e
// R|^2, and term k of e R is R_kk (e_k + sum over j < k of e_j R_jk / R_kk). So weight k is rounded
// from w_k + sum over j < k of e_j above(k)[j], with e = weight - stored value.

#include <vector>

#include "src/convert/calibration/second_moments.h"

namespace moe {

class Feedback {
 public:
  /// Normalises moments by the mean of their diagonal and adds `kDamping` to it. With few rows they
  /// are blended with `kPrior` rows per input of the `average`, which may be null. The result does
  /// not depend on threads.
  Feedback(const SecondMoments& moments, const SecondMoments* average, ThreadPool& pool);

  static constexpr double kDamping = 0.05;
  static constexpr double kPrior = 0.25;

  /// False if all inputs were 0 or some were not finite.
  bool known() const { return known_; }
  /// R_jk / R_kk for j in [block begin of k, k).
  const float* above(int32_t k) const { return above_.data() + column_begin(k); }
  /// R_kk^2
  float pivot(int32_t k) const { return pivots_[static_cast<size_t>(k)]; }
  /// H_kk, including damping.
  const std::vector<float>& diagonal() const { return diagonal_; }
  int32_t n() const { return static_cast<int32_t>(pivots_.size()); }

 private:
  static size_t column_begin(int32_t k) {
    const auto block = static_cast<size_t>(k / kMomentBlock);
    const auto column = static_cast<size_t>(k % kMomentBlock);
    constexpr size_t kSize = size_t{kMomentBlock} * (kMomentBlock - 1) / 2;
    return block * kSize + column * (column - 1) / 2;
  }
  bool factor(MomentBlock block, std::vector<double>* work, ThreadPool& pool);

  bool known_ = false;
  std::vector<float> above_;
  std::vector<float> pivots_;
  std::vector<float> diagonal_;
};

}  // namespace moe
