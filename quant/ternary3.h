#pragma once
// ternary3: five codes in a byte, base 3. Inputs come in segments of 256, which are 13 blocks of
// 20; the last four places of a segment are padding, so that 256 activations never straddle blocks.

#include "quant/weight_format.h"

namespace moe {

/// Inputs of one 64-byte block, and blocks of one whole segment of kTernary3Segment inputs.
inline constexpr int kTernary3Cols = 20;
inline constexpr int kTernary3Segment = 256;
inline constexpr int kTernary3Blocks = 13;

size_t ternary3_tile_bytes(int64_t cols);
float ternary3_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void ternary3_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void ternary3_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t ternary3_find_invalid(const uint8_t* tile, size_t bytes);

inline constexpr WeightFormat kTernary3Format = {
    FormatId::kTernary3, "ternary3",    true,    ternary3_tile_bytes,   ternary3_element,
    ternary3_read_row,   ternary3_pack, nullptr, ternary3_find_invalid, "a base-3 byte above 242"};

}  // namespace moe
