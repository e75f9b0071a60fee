// SPDX-License-Identifier: MIT
#pragma once
// A matrix whose weights are codes of 4 or 8 bits in one tensor, with scales and zero points in
// others: weight = scale * (code - zero).

#include <optional>

#include "formats/import/checkpoint.h"

namespace moe {

/// Layout of the codes. rows: outputs; cols: inputs; P: codes per 32-bit word, lowest first.
enum class CodeLayout : uint8_t {
  kGptq,   // (cols / P, rows); zeros (groups, rows / P), scales (groups, rows)
  kAwq,    // (cols, rows / P), P outputs permuted; zeros too; scales as above
  kWords,  // (rows, cols / P); zeros (rows / P, groups), scales (rows, groups)
  kBytes   // (rows, cols) of I8; zeros (rows, groups) of I8, scales (rows, groups)
};

struct PackedMatrix final : PackedRows {
  CodeLayout layout = CodeLayout::kWords;
  int bits = 4;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group = 0;       // inputs per scale; divides cols
  bool one_scale = false;  // for all rows, and one zero point; one group
  SourceTensor words;      // or bytes: the codes
  SourceTensor scales;
  std::optional<SourceTensor> zeros;  // absent: the middle code, or 0 for bytes
  std::optional<SourceTensor> index;  // the group of each input; absent: in order
  int zero_offset = 0;                // added to zeros

  int64_t groups() const { return cols / group; }
  bool has_row_scales() const { return bits == 8 && group == cols; }
  /// Throws MOE_ERR_RANGE for an index or a zero point that is out of range, and what
  /// Checkpoint::read throws.
  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override;
  PackedCodes codes(const Checkpoint& checkpoint) const override;
  void read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n, float* scales,
                   float* minimums) const override;

 private:
  bool symmetric(const Checkpoint& checkpoint) const;
};

}  // namespace moe
