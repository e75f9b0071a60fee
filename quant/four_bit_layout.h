// SPDX-License-Identifier: MIT
#pragma once
// Tile layout of the four-bit formats (quant/README.md). Plain C headers only: the files of
// kernels/cpu/isa include this.

#include "quant/group_layout.h"

namespace moe {

/// Bytes of a group's codes in a tile.
inline constexpr int kFourBitGroupBytes = kTileGroup / 2 * kTileRows;

/// Eight values of a table, the first in the lowest byte.
constexpr uint64_t table_word(const int (&values)[8]) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint64_t{static_cast<uint8_t>(values[i])} << (8 * i);
  return word;
}

/// A format by its scales and the values of codes 0..7 and 8..15.
template <GroupScale kScale, uint64_t kLow, uint64_t kHigh>
struct FourBitLayout : GroupsInTile<kScale, 4> {
  static constexpr uint64_t kLowValues = kLow;
  static constexpr uint64_t kHighValues = kHigh;

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const int32_t in_group = col % kTileGroup;
    const uint8_t* codes = tile + GroupsInTile<kScale, 4>::codes_at(col / kTileGroup);
    const uint8_t byte = codes[in_group / 8 * kBlockBytes + row * 4 + col % 4];
    const int code = byte >> (in_group % 8 / 4 * 4) & 15;
    return static_cast<int8_t>((code < 8 ? kLow : kHigh) >> (code % 8 * 8) & 255);
  }
};

/// -8..7, each group with an f16 scale: also GGUF's Q4_0.
using Int4Layout = FourBitLayout<GroupScale::kF16, table_word({-8, -7, -6, -5, -4, -3, -2, -1}),
                                 table_word({0, 1, 2, 3, 4, 5, 6, 7})>;

/// 0..15, with an f16 scale and an f16 minimum: also GGUF's Q4_1.
using Int4MinLayout = FourBitLayout<GroupScale::kF16Minimum, table_word({0, 1, 2, 3, 4, 5, 6, 7}),
                                    table_word({8, 9, 10, 11, 12, 13, 14, 15})>;

/// The same values, with six-bit scales and minimums: also GGUF's Q4_K.
using Int4KLayout = FourBitLayout<GroupScale::kSixBits, table_word({0, 1, 2, 3, 4, 5, 6, 7}),
                                  table_word({8, 9, 10, 11, 12, 13, 14, 15})>;

/// E2M1 floats, doubled; half the scale of MXFP4 (OCP Microscaling Formats 1.0).
using Fp4Layout = FourBitLayout<GroupScale::kPowerOfTwo, table_word({0, 1, 2, 3, 4, 6, 8, 12}),
                                table_word({0, -1, -2, -3, -4, -6, -8, -12})>;

/// The values of GGUF's IQ4_NL, denser around 0.
using Nl4Layout =
    FourBitLayout<GroupScale::kF16, table_word({-127, -104, -83, -65, -49, -35, -22, -10}),
                  table_word({1, 13, 25, 38, 53, 69, 89, 113})>;

/// NF4 of bitsandbytes (QLoRA, arXiv 2305.14314): its float table, with ends -1 and 1, times
/// kNf4Scale, rounded. This factor gives the smallest error for normal weights.
inline constexpr float kNf4Scale = 124.117f;
using Nf4Layout =
    FourBitLayout<GroupScale::kF16, table_word({-124, -86, -65, -49, -35, -23, -11, 0}),
                  table_word({10, 20, 31, 42, 55, 70, 90, 124})>;

}  // namespace moe
