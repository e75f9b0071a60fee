// SPDX-License-Identifier: MIT
#pragma once
// Sums of x x^T over inputs x, which give the output error of a weight change. Inputs in different
// blocks count as uncorrelated: memory and time then grow linearly with the number of inputs.

#include <cstdint>
#include <vector>

#include "src/base/thread_pool.h"

namespace moe {

/// The mean of n > 0 terms as it is saved, and their sum from it; the product is exact.
inline float saved_mean(double sum, uint64_t n) {
  return static_cast<float>(sum / static_cast<double>(n));
}
inline double sum_of(float mean, uint64_t n) { return double{mean} * static_cast<double>(n); }

/// Inputs per block.
inline constexpr int32_t kMomentBlock = 2048;

/// The block of input i of n: [begin, end).
struct MomentBlock {
  int32_t begin;
  int32_t end;
};
constexpr MomentBlock moment_block(int32_t i, int32_t n, int32_t block = kMomentBlock) {
  const int32_t begin = i / block * block;
  return {begin, n - begin < block ? n : begin + block};
}

class SecondMoments {
 public:
  explicit SecondMoments(int32_t n, int32_t block = kMomentBlock);

  /// Adds rows of x, row i at x + (row_ids ? row_ids[i] : i) * ld. Sums are in row order for any
  /// number of threads and any split into calls. Allocates nothing: `panel` has panel_size(n).
  void add(const float* x, int64_t ld, const int32_t* row_ids, int32_t n_rows, double* panel,
           ThreadPool& pool);
  static size_t panel_size(int32_t n);
  void add(const SecondMoments& other);

  /// Replaces every sum by its mean in f32 times n_rows(): what is saved and read again is the
  /// same.
  void round();
  /// The means of sums [first, first + n) in the order of at(), or of sums to be set: by n_rows()
  /// after set_rows(). There are size() of them.
  void means(size_t first, size_t n, float* out) const;
  void set_means(size_t first, size_t n, const float* means);
  void set_rows(uint64_t n_rows) { n_rows_ = n_rows; }
  size_t size() const { return sums_.size(); }

  int32_t n() const { return n_; }
  /// False if an input or its square was not finite.
  bool is_finite() const;
  uint64_t n_rows() const { return n_rows_; }
  /// For inputs i and j <= i in one block.
  double at(int32_t i, int32_t j) const { return sums_[row_begin(i) + static_cast<size_t>(j)]; }

  /// Memory for the moments of n inputs.
  static uint64_t bytes(int32_t n, int32_t block = kMomentBlock);

 private:
  // Such that + j is the index of (i, j).
  size_t row_begin(int32_t i) const {
    const auto width = static_cast<size_t>(block_);
    const auto block = static_cast<size_t>(i / block_);
    const auto row = static_cast<size_t>(i % block_);
    return block * (width * (width + 1) / 2) + row * (row + 1) / 2 - block * width;
  }
  void add_row(int32_t i, const double* panel, int32_t n_rows);

  int32_t n_;
  int32_t block_;
  uint64_t n_rows_ = 0;
  std::vector<double> sums_;  // lower triangles of the blocks, by rows
};

}  // namespace moe
