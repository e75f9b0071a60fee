// SPDX-License-Identifier: MIT
#pragma once
// Tile layout of int8_group (quant/README.md). Plain C headers only: the files of kernels/cpu/isa
// include this.

#include "quant/group_layout.h"

namespace moe {

/// Codes of a group as in int8, with an f16 scale per group; equals GGUF's Q8_0.
struct Int8GroupLayout : GroupsInTile<GroupScale::kF16, 8> {
  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const uint8_t* codes = tile + codes_at(col / kTileGroup);
    return static_cast<int8_t>(codes[col % kTileGroup / 4 * kBlockBytes + row * 4 + col % 4]);
  }
};

}  // namespace moe
