// SPDX-License-Identifier: MIT
#pragma once
// ternary3: -1, 0 and 1, five codes per byte.

#include "quant/ternary3_layout.h"
#include "quant/weight_format.h"

namespace moe {

size_t ternary3_tile_bytes(int64_t cols);
void ternary3_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void ternary3_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t ternary3_find_invalid(const uint8_t* tile, size_t bytes);
void ternary3_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

struct Ternary3Format : Ternary3Layout {
  static constexpr WeightFormat info = {
      .name = "ternary3",
      .integer = true,
      .max_code = 1,
      .scales = kTensorOrRowScales,
      .act = ActPrecision::kA8,
      .tile_bytes = ternary3_tile_bytes,
      .read_row = ternary3_read_row,
      .pack_codes = ternary3_pack,
      .find_invalid = ternary3_find_invalid,
      .invalid = "a base-3 byte above 242",
      .spread = 1.5f,
      .random_tile = ternary3_random_tile,
      .random_cols = kTernary3Segment,
  };
};

}  // namespace moe
