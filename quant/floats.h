#pragma once
// f32, bf16, f16: plain values, tile by tile; i32: whole numbers of tables, laid out the same way.

#include "quant/weight_format.h"

namespace moe {

size_t four_byte_tile_bytes(int64_t cols);
size_t two_byte_tile_bytes(int64_t cols);

float f32_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void f32_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void f32_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t f32_find_invalid(const uint8_t* tile, size_t bytes);

float bf16_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void bf16_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void bf16_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t bf16_find_invalid(const uint8_t* tile, size_t bytes);

float f16_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void f16_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
/// Values beyond 65504 become infinite, which find_invalid() then finds.
void f16_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t f16_find_invalid(const uint8_t* tile, size_t bytes);

float i32_element(const uint8_t* tile, int32_t cols, int row, int32_t col);
void i32_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
/// WeightFormat has no packer of whole numbers: callers that store tables know that they do.
void i32_pack(const int32_t* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);

inline constexpr WeightFormat kF32Format = {
    FormatId::kF32, "f32",   false,    four_byte_tile_bytes, f32_element,
    f32_read_row,   nullptr, f32_pack, f32_find_invalid,     "NaN or infinity"};
inline constexpr WeightFormat kBf16Format = {
    FormatId::kBf16, "bf16",  false,     two_byte_tile_bytes, bf16_element,
    bf16_read_row,   nullptr, bf16_pack, bf16_find_invalid,   "NaN or infinity"};
inline constexpr WeightFormat kF16Format = {
    FormatId::kF16, "f16",   false,    two_byte_tile_bytes, f16_element,
    f16_read_row,   nullptr, f16_pack, f16_find_invalid,    "NaN or infinity"};
inline constexpr WeightFormat kI32Format = {
    FormatId::kI32, "i32",   false, four_byte_tile_bytes, i32_element, i32_read_row, nullptr,
    nullptr,        nullptr, ""};

}  // namespace moe
