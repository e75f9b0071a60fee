// SPDX-License-Identifier: MIT
#pragma once
// Tile layout of int6_k (quant/README.md). Plain C headers only: the files of kernels/cpu/isa
// include this.

#include "quant/group_layout.h"

namespace moe {

/// Codes of six bits in groups of 16, whose scales are factors of an f16 per 256 inputs; equals
/// GGUF's Q6_K. A group is two blocks with the lower four bits of code + 32, as in the four-bit
/// formats, and a block with the upper two, as in ternary2.
struct Int6KLayout : GroupsInTile<GroupScale::kEightBits, 6, kTileGroup / 2> {
  static constexpr int kOffset = 32;  // stored codes are weight + 32
  static constexpr int kHigh = 2 * kBlockBytes;

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const uint8_t* codes = tile + codes_at(col / kGroupInputs) + row * 4 + col % 4;
    const int quad = col % kGroupInputs / 4;
    const int low = codes[quad / 2 * kBlockBytes] >> (quad % 2 * 4) & 15;
    const int high = codes[kHigh] >> (quad * 2) & 3;
    return static_cast<float>((low | high << 4) - kOffset);
  }
};

}  // namespace moe
