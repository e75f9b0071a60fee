// SPDX-License-Identifier: MIT
// Adds up products of pairs of inputs with threads, in panels that stay in cache and in a fixed
// order.
#include "src/convert/calibration/second_moments.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

constexpr int32_t kPanelRows = 16;
constexpr int64_t kParallelSums = int64_t{1} << 17;  // multiplications that justify threads

}  // namespace

SecondMoments::SecondMoments(int32_t n, int32_t block)
    : n_(n), block_(block), sums_(static_cast<size_t>(bytes(n, block) / sizeof(double))) {}

size_t SecondMoments::panel_size(int32_t n) { return static_cast<size_t>(n) * kPanelRows; }

bool SecondMoments::is_finite() const {
  for (int32_t i = 0; i < n_; ++i) {
    if (!std::isfinite(at(i, i))) return false;
  }
  return true;
}

uint64_t SecondMoments::bytes(int32_t n, int32_t block) {
  uint64_t sums = 0;
  for (int32_t begin = 0; begin < n; begin += block) {
    const auto width = static_cast<uint64_t>(moment_block(begin, n, block).end - begin);
    sums += width * (width + 1) / 2;
  }
  return sums * sizeof(double);
}

void SecondMoments::add(const float* x, int64_t ld, const int32_t* row_ids, int32_t n_rows,
                        double* panel, ThreadPool& pool) {
  const int64_t width = std::min(n_, block_);
  n_rows_ += static_cast<uint64_t>(n_rows);
  for (int32_t first = 0; first < n_rows; first += kPanelRows) {
    const int32_t n = std::min(kPanelRows, n_rows - first);
    for (int32_t r = 0; r < n; ++r) {
      const float* row = x + (row_ids != nullptr ? row_ids[first + r] : first + r) * ld;
      std::copy(row, row + n_, panel + static_cast<ptrdiff_t>(r) * n_);
    }
    if (width * n_ * n / 2 < kParallelSums) {
      for (int32_t i = 0; i < n_; ++i) add_row(i, panel, n);
    } else {
      pool.parallel([&](int thread, int n_threads) {  // balances rows, which grow longer
        for (int32_t i = thread; i < n_; i += n_threads) add_row(i, panel, n);
      });
    }
  }
}

// Four input rows at a time, each sum in their order.
void SecondMoments::add_row(int32_t i, const double* panel, int32_t n_rows) {
  const int32_t begin = moment_block(i, n_, block_).begin;
  double* out = sums_.data() + (row_begin(i) + static_cast<size_t>(begin));
  const int32_t n = i - begin + 1;
  const double* x = panel + begin;
  int32_t r = 0;
  for (; r + 4 <= n_rows; r += 4) {
    const double *x0 = x + ptrdiff_t{r} * n_, *x1 = x0 + n_, *x2 = x1 + n_, *x3 = x2 + n_;
    const double a0 = x0[n - 1], a1 = x1[n - 1], a2 = x2[n - 1], a3 = x3[n - 1];
    for (int32_t j = 0; j < n; ++j) {
      out[j] = out[j] + a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j];
    }
  }
  for (; r < n_rows; ++r) {
    const double* row = x + ptrdiff_t{r} * n_;
    for (int32_t j = 0; j < n; ++j) out[j] += row[n - 1] * row[j];
  }
}

void SecondMoments::round() {
  if (n_rows_ == 0) return;
  for (double& sum : sums_) sum = sum_of(saved_mean(sum, n_rows_), n_rows_);
}

void SecondMoments::means(size_t first, size_t n, float* out) const {
  for (size_t i = 0; i < n; ++i) out[i] = saved_mean(sums_[first + i], n_rows_);
}

void SecondMoments::set_means(size_t first, size_t n, const float* means) {
  for (size_t i = 0; i < n; ++i) sums_[first + i] = sum_of(means[i], n_rows_);
}

void SecondMoments::add(const SecondMoments& other) {
  n_rows_ += other.n_rows_;
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
}

}  // namespace moe
