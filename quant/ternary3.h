#pragma once
// ternary3: five codes per byte, base 3. Inputs are in segments of 256, which are 13 blocks of 20;
// the last four places of a segment are padding, so that 256 activations never straddle blocks.

#include "quant/weight_format.h"

namespace moe {

/// Inputs of one 64-byte block, and blocks of one whole segment of kTernary3Segment inputs.
inline constexpr int kTernary3Cols = 20;
inline constexpr int kTernary3Segment = 256;
inline constexpr int kTernary3Blocks = 13;

size_t ternary3_tile_bytes(int64_t cols);
void ternary3_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void ternary3_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t ternary3_find_invalid(const uint8_t* tile, size_t bytes);
void ternary3_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

struct Ternary3Format {
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

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const int within = col % kTernary3Segment;
    const int64_t block =
        int64_t{col / kTernary3Segment} * kTernary3Blocks + within / kTernary3Cols;
    int byte = tile[block * kBlockBytes + row * 4 + within % 4];
    for (int digit = within % kTernary3Cols / 4; digit > 0; --digit) byte /= 3;
    return static_cast<float>(byte % 3 - 1);
  }
};

}  // namespace moe
