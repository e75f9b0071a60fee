// SPDX-License-Identifier: MIT
#pragma once
// int8_group: one signed byte per weight, -127..127; 32 inputs of a row share a scale stored in the
// tile next to their codes.

#include "quant/int8.h"
#include "quant/int8_group_layout.h"

namespace moe {

size_t int8_group_tile_bytes(int64_t cols);
void int8_group_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
/// Sets scales to 1.
void int8_group_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
void int8_group_pack_scales(const float* scales, const float* minimums, int n_rows, int32_t cols,
                            uint8_t* tile);
Status int8_group_quantise(const float* w, int64_t ld, int n_rows, int32_t cols,
                           const float* importance, uint8_t* tile);
int64_t int8_group_find_invalid(const uint8_t* tile, size_t bytes);
void int8_group_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

struct Int8GroupFormat : Int8GroupLayout {
  static constexpr WeightFormat info = {
      .name = "int8_group",
      .integer = true,
      .max_code = 127,
      .group = kTileGroup,
      .scale_inputs = kTileGroup,
      .scales = scale_bit(ScaleKind::kGroup),
      .act = ActPrecision::kA8Group,
      .segment_blocks = kSegmentBytes / kBlockBytes,
      .tile_bytes = int8_group_tile_bytes,
      .read_row = int8_group_read_row,
      .pack_codes = int8_group_pack,
      .pack_scales = int8_group_pack_scales,
      .quantise_tile = int8_group_quantise,
      .find_invalid = int8_group_find_invalid,
      .invalid = Int8Format::info.invalid,
      .random_code = int8_random_code,
      .random_tile = int8_group_random_tile,
      .random_cols = kGroups * kTileGroup,
  };
};

}  // namespace moe
