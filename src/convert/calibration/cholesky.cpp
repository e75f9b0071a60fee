// SPDX-License-Identifier: MIT
// Factors row by row with threads; sums are added in a fixed order, so that results do not depend
// on them.
#include "src/convert/calibration/cholesky.h"

#include <cmath>

namespace moe {
namespace {

constexpr int64_t kParallelColumn = int64_t{1} << 16;  // multiplications that justify threads

double* row_of(double* a, int32_t i) { return a + int64_t{i} * (i + 1) / 2; }

// Fixed order: term i goes to partial sum i % 8.
double dot(const double* a, const double* b, int32_t n) {
  constexpr int32_t kSums = 8;
  double sums[kSums] = {};
  int32_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int32_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sums[i % kSums] += a[i] * b[i];
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

}  // namespace

bool cholesky(int32_t n, double* a, ThreadPool& pool) {
  for (int32_t k = 0; k < n; ++k) {
    double* pivot_row = row_of(a, k);
    const double square = pivot_row[k] - dot(pivot_row, pivot_row, k);
    if (!(square > 0) || !std::isfinite(square)) return false;
    const double pivot = std::sqrt(square);
    pivot_row[k] = pivot;
    const auto rows = [&](int thread, int n_threads) {
      const Range range = split_range(n - k - 1, thread, n_threads);
      for (int64_t r = range.begin; r < range.end; ++r) {
        double* row = row_of(a, k + 1 + static_cast<int32_t>(r));
        row[k] = (row[k] - dot(row, pivot_row, k)) / pivot;
      }
    };
    if (int64_t{n - k} * k < kParallelColumn) {
      rows(0, 1);
    } else {
      pool.parallel(rows);
    }
  }
  return true;
}

}  // namespace moe
