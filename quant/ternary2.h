// SPDX-License-Identifier: MIT
#pragma once
// ternary2: four codes per byte, two bits each.

#include "quant/weight_format.h"

namespace moe {

/// Inputs of one 64-byte block.
inline constexpr int kTernary2Cols = 16;

size_t ternary2_tile_bytes(int64_t cols);
void ternary2_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void ternary2_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t ternary2_find_invalid(const uint8_t* tile, size_t bytes);
int8_t ternary2_random_code(uint8_t byte);
void ternary2_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

struct Ternary2Format {
  static constexpr WeightFormat info = {
      .name = "ternary2",
      .integer = true,
      .max_code = 1,
      .scales = kAllScales,
      .act = ActPrecision::kA8,
      .tile_bytes = ternary2_tile_bytes,
      .read_row = ternary2_read_row,
      .pack_codes = ternary2_pack,
      .find_invalid = ternary2_find_invalid,
      .invalid = "a 2-bit code of 3",
      .random_code = ternary2_random_code,
      .spread = 2,
      .random_tile = ternary2_random_tile,
      .random_cols = kTernary2Cols,
  };

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const uint8_t byte = tile[int64_t{col / kTernary2Cols} * kBlockBytes + row * 4 + col % 4];
    const int field = col % kTernary2Cols / 4;
    return static_cast<float>(((byte >> (2 * field)) & 3) - 1);
  }
};

}  // namespace moe
