// SPDX-License-Identifier: MIT
#pragma once
// int8: one signed byte per weight, -127..127.

#include "quant/quantise.h"
#include "quant/weight_format.h"

namespace moe {

/// Inputs of one 64-byte block.
inline constexpr int kInt8Cols = 4;

size_t int8_tile_bytes(int64_t cols);
void int8_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void int8_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t int8_find_invalid(const uint8_t* tile, size_t bytes);
int8_t int8_random_code(uint8_t byte);
void int8_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

struct Int8Format {
  static constexpr WeightFormat info = {
      .name = "int8",
      .integer = true,
      .max_code = 127,
      .scales = kTensorOrRowScales,
      .act = ActPrecision::kA8Block,
      .tile_bytes = int8_tile_bytes,
      .read_row = int8_read_row,
      .pack_codes = int8_pack,
      .quantise_row = int8_row,
      .find_invalid = int8_find_invalid,
      .invalid = "-128 among codes of -127..127",
      .random_code = int8_random_code,
      .random_tile = int8_random_tile,
      .random_cols = kInt8Cols,
  };

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    return static_cast<int8_t>(tile[int64_t{col / kInt8Cols} * kBlockBytes + row * 4 + col % 4]);
  }
};

}  // namespace moe
