#pragma once
// The sums of x x^T over inputs x, from which the error follows that a change of weights makes in
// the outputs. Inputs further apart than a block count as unrelated: memory and time then grow with
// the number of inputs and not with its square or cube.

#include <cstdint>
#include <vector>

#include "src/base/thread_pool.h"

namespace moe {

/// Inputs of a block.
inline constexpr int32_t kMomentBlock = 2048;

/// The block that input i of n is in: [begin, end).
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

  /// Adds rows of x, row i at x + (row_ids ? row_ids[i] : i) * ld. Each sum is taken in the order
  /// of the rows, however many threads there are and however the rows are cut into calls. Allocates
  /// nothing: `panel` is room for panel_size(n).
  void add(const float* x, int64_t ld, const int32_t* row_ids, int32_t n_rows, double* panel,
           ThreadPool& pool);
  static size_t panel_size(int32_t n);
  void add(const SecondMoments& other);

  int32_t n() const { return n_; }
  /// False when an input was no finite number, or its square none.
  bool is_finite() const;
  uint64_t n_rows() const { return n_rows_; }
  /// Of inputs i and j <= i in one block.
  double at(int32_t i, int32_t j) const { return sums_[row_begin(i) + static_cast<size_t>(j)]; }

  /// What the moments of n inputs take.
  static uint64_t bytes(int32_t n, int32_t block = kMomentBlock);

 private:
  // Such that + j is the place of (i, j).
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
  std::vector<double> sums_;  // of each block the lower triangle, row by row
};

}  // namespace moe
