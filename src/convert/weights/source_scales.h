#pragma once
// Matrices that a checkpoint has in codes of four or eight bits already, each 32 inputs or each row
// with a scale. A format holds them with those scales, which lie in front of or beside the codes.

#include <functional>

#include "src/convert/plan.h"

namespace moe {

/// The format whose values the matrix's codes select; nothing when there is none, or its rows do
/// not lie in the tensor as they are stored. Of GGUF's blocks those of four bits.
std::optional<FormatId> format_of_codes(const PlannedMatrix& matrix, const Checkpoint& checkpoint);

/// Whether that is a format of eight bits. A code of -128, which they do not have, becomes -127.
bool has_eight_bits(FormatId format);

class SourceScales {
 public:
  /// `format`: format_of_codes() of the matrix, which must outlive this.
  SourceScales(const PlannedMatrix& matrix, FormatId format, const Checkpoint& checkpoint);

  /// True if rounding scales and minimums to the format's type changes the matrix by at most 1/1024
  /// of its norm. False if one is not finite, or too large for the format.
  bool fit(const std::function<void()>& tick);
  /// Rows [first, first + n), whose weights are `values` (n, cols): each one's value in the
  /// format's table (n, cols), and the scales and minimums of the groups (n, cols / 32), or the
  /// scales of the rows (n), which are positive.
  void split(int32_t first, int n, const float* values, int8_t* codes);
  const float* scales() const { return scales_.data(); }
  const float* minimums() const { return minimums_.data(); }

 private:
  void read(int32_t first, int n);
  void read_row(int64_t row, float* scales, float* minimums);
  void make_positive();

  const PlannedMatrix& matrix_;
  const Checkpoint& checkpoint_;
  const FormatId format_;
  const int32_t group_;  // inputs that share a scale
  int8_t nearest_[256];  // value of the table for each whole number from -128 on
  std::vector<float> scales_, minimums_;
  std::vector<uint8_t> bytes_;  // of one row
};

}  // namespace moe
