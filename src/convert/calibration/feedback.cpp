// SPDX-License-Identifier: MIT
// Blends the moments of rarely used experts with the layer's average and factors each block.
#include "src/convert/calibration/feedback.h"

#include <cmath>

#include "src/convert/calibration/cholesky.h"

namespace moe {
namespace {

// Moments blended with an average, and their mean diagonal.
class Blend {
 public:
  Blend(const SecondMoments& moments, const SecondMoments* average)
      : moments_(moments), average_(average) {
    if (average_ == &moments || (average_ != nullptr && average_->n_rows() == 0)) {
      average_ = nullptr;
    }
    if (average_ != nullptr) {
      share_ = Feedback::kPrior * moments.n() / static_cast<double>(average_->n_rows());
    }
    for (int32_t i = 0; i < moments.n(); ++i) mean_ += at(i, i) / moments.n();
  }
  double mean() const { return mean_; }
  double at(int32_t i, int32_t j) const {
    const double own = moments_.at(i, j);
    return average_ == nullptr ? own : own + share_ * average_->at(i, j);
  }

 private:
  const SecondMoments& moments_;
  const SecondMoments* average_;
  double share_ = 0;
  double mean_ = 0;
};

}  // namespace

Feedback::Feedback(const SecondMoments& moments, const SecondMoments* average, ThreadPool& pool) {
  const int32_t n = moments.n();
  const Blend blend(moments, average);
  if (!(blend.mean() > 0) || !std::isfinite(blend.mean())) return;
  above_.resize(column_begin(n - 1) + static_cast<size_t>((n - 1) % kMomentBlock));
  pivots_.resize(static_cast<size_t>(n));
  std::vector<double> work;
  for (int32_t begin = 0; begin < n; begin += kMomentBlock) {
    const MomentBlock block = moment_block(begin, n);
    work.clear();
    for (int32_t i = block.end - 1; i >= block.begin; --i) {  // R is a factor of the reversed H
      for (int32_t j = block.end - 1; j > i; --j) work.push_back(blend.at(j, i) / blend.mean());
      work.push_back(blend.at(i, i) / blend.mean() + kDamping);
    }
    for (int32_t i = block.begin; i < block.end; ++i) {
      diagonal_.push_back(static_cast<float>(blend.at(i, i) / blend.mean() + kDamping));
    }
    if (!factor(block, &work, pool)) return;
  }
  known_ = true;
}

bool Feedback::factor(MomentBlock block, std::vector<double>* work, ThreadPool& pool) {
  const int32_t n = block.end - block.begin;
  if (!cholesky(n, work->data(), pool)) return false;
  for (int32_t k = 0; k < n; ++k) {
    const auto column = static_cast<size_t>(n - 1 - k);
    const auto entry = [&](size_t row) { return (*work)[row * (row + 1) / 2 + column]; };
    const double pivot = entry(column);
    pivots_[static_cast<size_t>(block.begin + k)] = static_cast<float>(pivot * pivot);
    float* out = above_.data() + column_begin(block.begin + k);
    for (int32_t j = 0; j < k; ++j) {
      out[j] = static_cast<float>(entry(static_cast<size_t>(n - 1 - j)) / pivot);
    }
  }
  return true;
}

}  // namespace moe
