#pragma once
// Finds matrices that are ternary already: every weight is 0 or +-one magnitude, per tensor, per
// row or per group of inputs. Then storing codes and magnitudes loses nothing.

#include "quant/format.h"

namespace moe {

/// The coarsest scale under which the rows seen so far are ternary.
struct TernaryFit {
  ScaleKind scale_kind = ScaleKind::kNone;  // kNone: they are not
  int32_t group = 0;                        // kGroup: 256, 128 or 64
  float tensor_scale = 1;                   // kTensor
};

/// Rows are shown one by one, in any order; nothing is kept of them.
class TernaryDetector {
 public:
  explicit TernaryDetector(int32_t cols) : cols_(cols) {}
  /// row (cols). -0 counts as 0; NaN and infinity are not ternary.
  void add_row(const float* row);
  /// False as soon as nothing fits any more: the rest need not be read.
  bool possible() const { return tensor_ || row_ || largest_group_ != 0; }
  /// The answer for the rows shown; a matrix of zeros has the tensor scale 1.
  TernaryFit fit() const;

 private:
  int32_t cols_;
  bool tensor_ = true;
  bool row_ = true;
  int32_t largest_group_ = 256;  // the largest group that still fits; 0: none
  uint32_t magnitude_ = 0;       // bits of the tensor's one magnitude; 0: none seen
};

/// Codes and scales of one row under a fit that holds for it. codes (cols); scales: nothing for
/// kTensor, 1 for kRow, one per group for kGroup, in order of input. All zeros: scale 1.
void ternary_split(const TernaryFit& fit, const float* row, int32_t cols, int8_t* codes,
                   float* scales);

}  // namespace moe
