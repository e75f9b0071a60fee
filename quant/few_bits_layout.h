// SPDX-License-Identifier: MIT
#pragma once
// Tile layouts of int2_k and int3_k (quant/README.md). Plain C headers only: the files of
// kernels/cpu/isa include this.

#include "quant/group_layout.h"

namespace moe {

/// Codes of two or three bits in groups of 16. A group is a block with the lower two bits, as in
/// ternary2. Two neighbouring groups of three bits are followed by a block that has the third bits
/// of both: the first group's in the lower halves of its bytes, bit q for inputs 4q .. 4q + 3.
template <GroupScale kScale, int kBits>
struct FewBitsLayout : GroupsInTile<kScale, kBits, kTileGroup / 2> {
  using Groups = GroupsInTile<kScale, kBits, kTileGroup / 2>;
  static constexpr bool kThird = kBits == 3;
  static constexpr int kOffset = kThird ? 4 : 0;  // stored codes are weight + kOffset

  MOE_INLINE int64_t codes_at(int32_t group) {
    const int32_t g = group % Groups::kGroups;
    return Groups::scales_at(group) + Groups::kScaleBytes + g / 2 * (2 * Groups::kGroupBytes) +
           g % 2 * kBlockBytes;
  }
  /// From a group's codes to the block with its third bits.
  MOE_INLINE int third_after(int32_t group) { return (2 - group % 2) * kBlockBytes; }

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const int32_t group = col / Groups::kGroupInputs;
    const uint8_t* codes = tile + codes_at(group) + row * 4 + col % 4;
    const int quad = col % Groups::kGroupInputs / 4;
    int code = *codes >> (quad * 2) & 3;
    if constexpr (kThird) {
      code |= (codes[third_after(group)] >> (group % 2 * 4 + quad) & 1) << 2;
    }
    return static_cast<float>(code - kOffset);
  }
};

/// 0..3, each group with a factor of four bits of an f16 scale and of an f16 minimum per 256
/// inputs: also GGUF's Q2_K.
using Int2KLayout = FewBitsLayout<GroupScale::kFourBits, 2>;

/// -4..3, each group with a signed factor of six bits of an f16 per 256 inputs: also GGUF's Q3_K.
using Int3KLayout = FewBitsLayout<GroupScale::kSigned6, 3>;

}  // namespace moe
