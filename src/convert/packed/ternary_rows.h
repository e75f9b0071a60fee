// SPDX-License-Identifier: MIT
#pragma once
// Rows of matrices stored as ternary codes, with one scale for a matrix.

#include "formats/import/checkpoint.h"

namespace moe {

/// Rows of ternary codes; these have no scales per group.
class CodesOfThree : public PackedRows {
 public:
  PackedCodes codes(const Checkpoint&) const override { return PackedCodes::kTernary; }
  void read_scales(const Checkpoint&, int64_t, int64_t, float*, float*) const override;
};

/// Four codes + 1 in a byte of a U8 tensor (..., packed, inner, cols) that stands for weights
/// (..., unpacked, inner, cols): bits 2 i and 2 i + 1 of item r hold item r + i packed.
struct TernaryBytes final : CodesOfThree {
  SourceTensor bytes;
  std::vector<float> scales;  // one, or one for each of as many equal parts of the rows
  int64_t packed = 0;
  int64_t unpacked = 0;  // at most 4 packed
  int64_t inner = 1;     // rows of an item
  int64_t n_rows = 0;    // in all

  /// Throws MOE_ERR_CORRUPT for a code 3, and what Checkpoint::read throws.
  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override;
};

/// I2_S: code i + j block / 4 of a block + 1 is in bits 6 - 2 j and 7 - 2 j of its byte i; blocks
/// follow each other row by row, and the scale follows them.
struct I2sRows final : CodesOfThree {
  SourceTensor tensor;
  int64_t block = 128;  // divides cols

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override;
};

/// Floats times a scale.
struct ScaledRows final : CodesOfThree {
  SourceTensor floats;
  float scale = 1;

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override;
};

}  // namespace moe
