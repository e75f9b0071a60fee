#pragma once
// int8: one signed byte per weight, -127..127.

#include "quant/weight_format.h"

namespace moe {

/// Inputs of one 64-byte block.
inline constexpr int kInt8Cols = 4;

size_t int8_tile_bytes(int64_t cols);
float int8_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void int8_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void int8_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t int8_find_invalid(const uint8_t* tile, size_t bytes);

inline constexpr WeightFormat kInt8Format = {
    FormatId::kInt8, "int8",    true,    int8_tile_bytes,   int8_element,
    int8_read_row,   int8_pack, nullptr, int8_find_invalid, "an int8 code of -128"};

}  // namespace moe
