// SPDX-License-Identifier: MIT
#pragma once
// Thirty-two inputs of a codebook format, as matrix products take them. Plain C headers only: the
// files of kernels/cpu/isa include this.

#include "quant/four_bit_layout.h"

namespace moe {

/// Inputs [begin, begin + 32) of a tile.
struct CodebookGroup {
  alignas(kBlockBytes) uint8_t codes[kFourBitGroupBytes];  // placed as those of four-bit formats
  alignas(kBlockBytes) uint16_t halves[kTileRows];
  int8_t factors[2][kTileRows];  // of 16 inputs each: scale = half * factor * unit
};

/// `begin` is a multiple of 32.
void unpack_codebook(FormatId format, const uint8_t* tile, int32_t begin, CodebookGroup* out);

/// Constants of all groups of a format: the 16 values of its codes, and the unit of its scales.
struct CodebookValues {
  uint64_t low;
  uint64_t high;
  float unit;
};
CodebookValues codebook_values(FormatId format);

}  // namespace moe
