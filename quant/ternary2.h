#pragma once
// ternary2: four codes in a byte, two bits each.

#include "quant/weight_format.h"

namespace moe {

/// Inputs of one 64-byte block.
inline constexpr int kTernary2Cols = 16;

size_t ternary2_tile_bytes(int64_t cols);
float ternary2_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void ternary2_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void ternary2_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t ternary2_find_invalid(const uint8_t* tile, size_t bytes);

inline constexpr WeightFormat kTernary2Format = {
    FormatId::kTernary2, "ternary2",    true,    ternary2_tile_bytes,   ternary2_element,
    ternary2_read_row,   ternary2_pack, nullptr, ternary2_find_invalid, "a 2-bit code of 3"};

}  // namespace moe
