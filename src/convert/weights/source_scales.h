#pragma once
// Matrices that a checkpoint has in codes of four bits already, each 32 inputs with a scale. A
// four-bit format holds them with those scales, which lie in front of or beside the codes.

#include <functional>

#include "src/convert/plan.h"

namespace moe {

/// The format whose values the matrix's codes select; nothing when it is not of four bits, or its
/// rows do not lie in the tensor as they are stored.
std::optional<FormatId> four_bit_format(const PlannedMatrix& matrix, const Checkpoint& checkpoint);

class SourceScales {
 public:
  /// `format`: four_bit_format() of the matrix, which must outlive this.
  SourceScales(const PlannedMatrix& matrix, FormatId format, const Checkpoint& checkpoint);

  /// Whether rounding scales and minimums to the format's changes the matrix by at most 1/1024 of
  /// its norm. False if one of them is not finite, or too large for the format.
  bool fit(const std::function<void()>& tick);
  /// Rows [first, first + n), whose weights are `values` (n, cols): each one's value in the
  /// format's table (n, cols), and the scales and minimums of the groups (n, cols / 32).
  void split(int32_t first, int n, const float* values, int8_t* codes);
  const float* scales() const { return scales_.data(); }
  const float* minimums() const { return minimums_.data(); }

 private:
  void read(int32_t first, int n);
  void read_row(int64_t row, float* scales, float* minimums);

  const PlannedMatrix& matrix_;
  const Checkpoint& checkpoint_;
  const FormatId format_;
  int8_t nearest_[256];  // value of the table for each whole number from -128 on
  std::vector<float> scales_, minimums_;
  std::vector<uint8_t> bytes_;  // of one row
};

}  // namespace moe
