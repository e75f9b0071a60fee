// SPDX-License-Identifier: MIT
#pragma once
// Tile layout of tcq2 and tcq3 (quant/README.md). Plain C headers only: the files of
// kernels/cpu/isa include this.

#include "quant/four_bit_layout.h"

namespace moe {

/// Trellis-coded quantisation (Marcellin and Fischer 1990) with Ungerboeck's code of four states,
/// along the 16 rows of an input, the last followed by the first. A weight has a branch bit b and
/// kBits - 1 bits u, which select one of 2^(kBits + 1) levels, in ascending order:
///
///   level of row r = 4 u + 2 (b[r] ^ b[r - 2]) + b[r - 1]
///
/// A group is a block with the branch bits, then those with u. With byte 4 r + k % 4 for input k of
/// the group, e = k / 8 and h = k % 8 / 4, the branch bit is bit e + 4 h. u of one bit has the same
/// place in the second block; two bits are bits 2 (e / 2) + 4 h and the next of block 1 + e % 2.
template <int kBits, uint64_t kLow, uint64_t kHigh>
struct TrellisLayout : GroupsInTile<GroupScale::kUnsigned4, kBits> {
  using Groups = GroupsInTile<GroupScale::kUnsigned4, kBits>;
  static constexpr int kBitsOfWeight = kBits;
  static constexpr int kLevels = 2 << kBits;
  // The values of levels 0..7 and 8..15. With eight levels both are the same.
  static constexpr uint64_t kLowValues = kLow;
  static constexpr uint64_t kHighValues = kHigh;

  MOE_INLINE constexpr int value(int level) {
    return static_cast<int8_t>((level < 8 ? kLow : kHigh) >> (level % 8 * 8) & 255);
  }

  MOE_INLINE int level(const uint8_t* tile, int row, int32_t col) {
    const int32_t k = col % kTileGroup;
    const uint8_t* block = tile + Groups::codes_at(col / kTileGroup) + k % 4;
    const int e = k / 8, place = e + k % 8 / 4 * 4;
    const auto branch = [&](int r) { return block[r % kTileRows * 4] >> place & 1; };
    const int above = branch(row + kTileRows - 1);
    const int differs = branch(row) ^ branch(row + kTileRows - 2);
    int u = 0;
    if constexpr (kBits == 2) {
      u = block[kBlockBytes + row * 4] >> place & 1;
    } else {
      u = block[(1 + e % 2) * kBlockBytes + row * 4] >> (e / 2 * 2 + k % 8 / 4 * 4) & 3;
    }
    return 4 * u + 2 * differs + above;
  }
  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    return static_cast<float>(value(level(tile, row, col)));
  }
};

inline constexpr uint64_t kTrellisEight = table_word({-32, -17, -9, -2, 2, 9, 17, 32});

using Tcq2Layout = TrellisLayout<2, kTrellisEight, kTrellisEight>;
using Tcq3Layout = TrellisLayout<3, table_word({-32, -24, -18, -13, -9, -6, -3, -1}),
                                 table_word({1, 3, 6, 9, 13, 18, 24, 32})>;

}  // namespace moe
