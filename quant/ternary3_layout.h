// SPDX-License-Identifier: MIT
#pragma once
// Tile layout of ternary3 (quant/README.md): five codes per byte, base 3. Inputs are in segments of
// 256, which are 13 blocks of 20; the last four places of a segment are padding, so that 256
// activations never straddle blocks. Plain C headers only: the files of kernels/cpu/isa include
// this.

#include "quant/format.h"
#include "src/base/inline.h"

namespace moe {

/// Inputs of one 64-byte block, and blocks of one whole segment of kTernary3Segment inputs.
inline constexpr int kTernary3Cols = 20;
inline constexpr int kTernary3Segment = 256;
inline constexpr int kTernary3Blocks = 13;
inline constexpr int kTernary3SegmentBytes = kTernary3Blocks * kBlockBytes;

struct Ternary3Layout {
  /// The block of an input, and the base-3 digit of its code in each byte.
  MOE_INLINE int64_t block_of(int32_t col) {
    return int64_t{col / kTernary3Segment} * kTernary3Blocks +
           col % kTernary3Segment / kTernary3Cols;
  }
  MOE_INLINE int32_t digit_of(int32_t col) { return col % kTernary3Segment % kTernary3Cols / 4; }

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    int byte = tile[block_of(col) * kBlockBytes + row * 4 + col % 4];
    for (int digit = digit_of(col); digit > 0; --digit) byte /= 3;
    return static_cast<float>(byte % 3 - 1);
  }
};

}  // namespace moe
