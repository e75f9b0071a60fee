// SPDX-License-Identifier: MIT
#pragma once
// Detects matrices that are already ternary: every weight is 0 or +-one magnitude, per tensor, per
// row or per group of inputs. Storing codes and magnitudes is then lossless.

#include "quant/format.h"

namespace moe {

/// The coarsest scale with which the rows so far are ternary.
struct TernaryFit {
  ScaleKind scale_kind = ScaleKind::kNone;  // kNone: they are not ternary
  int32_t group = 0;                        // kGroup: 256, 128 or 64
  float tensor_scale = 1;                   // kTensor
};

/// Receives rows one by one, in any order; stores none of them.
class TernaryDetector {
 public:
  explicit TernaryDetector(int32_t cols) : cols_(cols) {}
  /// row (cols). -0 counts as 0; NaN and infinity are not ternary.
  void add_row(const float* row);
  /// False once nothing matches any more: the rest need not be read.
  bool possible() const { return tensor_ || row_ || largest_group_ != 0; }
  /// The result for the rows added; a zero matrix has tensor scale 1.
  TernaryFit fit() const;

 private:
  int32_t cols_;
  bool tensor_ = true;
  bool row_ = true;
  int32_t largest_group_ = 256;  // the largest group that still matches; 0: none
  uint32_t magnitude_ = 0;       // bits of the tensor's common magnitude; 0: none seen
};

/// Codes and scales of one row for a matching fit. codes (cols); scales: none for kTensor, 1 for
/// kRow, one per group for kGroup, in input order. All zeros: scale 1.
void ternary_split(const TernaryFit& fit, const float* row, int32_t cols, int8_t* codes,
                   float* scales);

}  // namespace moe
