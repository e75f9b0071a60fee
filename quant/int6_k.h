// SPDX-License-Identifier: MIT
#pragma once
// int6_k: codes of six bits, -32..31; 16 inputs of a row share a scale, a factor of one byte times
// an f16 that 256 inputs share.

#include "quant/int6_k_layout.h"
#include "quant/weight_format.h"

namespace moe {

size_t int6_k_tile_bytes(int64_t cols);
void int6_k_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
/// Sets scales to 1. A code of 32 becomes 31.
void int6_k_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
void int6_k_pack_scales(const float* scales, const float* minimums, int n_rows, int32_t cols,
                        uint8_t* tile);
Status int6_k_quantise(const float* w, int64_t ld, int n_rows, int32_t cols,
                       const float* importance, uint8_t* tile);
int64_t int6_k_find_invalid(const uint8_t* tile, size_t bytes);
int8_t int6_k_random_code(uint8_t byte);
void int6_k_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

struct Int6KFormat : Int6KLayout {
  static constexpr WeightFormat info = {
      .name = "int6_k",
      .integer = true,
      .max_code = 32,
      .group = kGroupInputs,
      .scale_inputs = kGroups * kGroupInputs,
      .scales = scale_bit(ScaleKind::kGroup),
      .act = ActPrecision::kA8Group,
      .segment_blocks = kSegmentBytes / kBlockBytes,
      .tile_bytes = int6_k_tile_bytes,
      .read_row = int6_k_read_row,
      .pack_codes = int6_k_pack,
      .pack_scales = int6_k_pack_scales,
      .quantise_tile = int6_k_quantise,
      .find_invalid = int6_k_find_invalid,
      .random_code = int6_k_random_code,
      .random_tile = int6_k_random_tile,
      .random_cols = kGroups * kGroupInputs,
  };
};

}  // namespace moe
