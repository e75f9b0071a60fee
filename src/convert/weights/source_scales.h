// SPDX-License-Identifier: MIT
#pragma once
// Matrices that the checkpoint stores as codes of two to eight bits, with a scale per group of
// inputs or per row. A format with the same values keeps codes and scales.

#include <functional>

#include "src/convert/plan.h"

namespace moe {

/// The format with the values of the matrix's codes. Empty if there is none, or if the matrix is
/// not made of whole rows of the tensor. Of GGUF's block types Q2_K, Q3_K, Q6_K, those of four bits
/// and the codebooks have one.
std::optional<FormatId> format_of_codes(const PlannedMatrix& matrix, const Checkpoint& checkpoint);

/// The row of the tensor that is row `r` of such a matrix.
int64_t row_of_tensor(const PlannedMatrix& matrix, int32_t r);

/// True for a format of eight bits. These have no code -128: it becomes -127.
bool has_eight_bits(FormatId format);

class SourceScales {
 public:
  /// `format`: format_of_codes() of the matrix, which must outlive this; not one of only_blocks().
  SourceScales(const PlannedMatrix& matrix, FormatId format, const Checkpoint& checkpoint);

  /// True if rounding scales and minimums to the format's type changes the matrix by at most 1/1024
  /// of its norm. False if one is not finite, or too large for the format.
  bool fit(const std::function<void()>& tick);
  /// Splits rows [first, first + n) with the weights `values` (n, cols) into codes (n, cols), the
  /// values in the format's table, and scales and minimums per group (n, cols / group), or positive
  /// scales per row (n).
  void split(int32_t first, int n, const float* values, int8_t* codes);
  const float* scales() const { return scales_.data(); }
  const float* minimums() const { return minimums_.data(); }

 private:
  static constexpr int32_t kChunk = 64;  // a loop of this length is vectorised

  void read(int32_t first, int n);
  void read_row(int64_t row, float* scales, float* minimums);
  void make_positive();
  static void divide(const float* values, int64_t n, float scale, float minimum, float* out);
  void nearest(const float (&quotients)[kChunk], int8_t (&codes)[kChunk]) const;
  void correct(const float* values, int64_t n, float scale, float minimum, int8_t* codes) const;
  int8_t code_of(float value, float scale, float minimum, int8_t near) const;

  const PlannedMatrix& matrix_;
  const Checkpoint& checkpoint_;
  const FormatId format_;
  const int32_t group_;  // inputs that share a scale
  int8_t nearest_[256];  // value of the table for each whole number from -128 on
  bool whole_ = true;    // the table is all numbers from nearest_[0] to nearest_[255]
  std::vector<float> scales_, minimums_;
  std::vector<uint8_t> bytes_;  // of one row
};

}  // namespace moe
