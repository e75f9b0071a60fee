// SPDX-License-Identifier: MIT
#pragma once
// f32, bf16, f16: plain values in tiles; i32: integers of tables in the same layout.

#include "quant/half.h"
#include "quant/weight_format.h"

namespace moe {

size_t four_byte_tile_bytes(int64_t cols);
size_t two_byte_tile_bytes(int64_t cols);

void f32_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void f32_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t f32_find_invalid(const uint8_t* tile, size_t bytes);
void f32_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

void bf16_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
void bf16_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t bf16_find_invalid(const uint8_t* tile, size_t bytes);
void bf16_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

void f16_read_row(const uint8_t* tile, int32_t cols, int row, float* out);
/// Values beyond 65504 become infinite; find_invalid() detects them.
void f16_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
int64_t f16_find_invalid(const uint8_t* tile, size_t bytes);
void f16_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

/// WeightFormat has no integer packer: callers that store tables call this directly.
void i32_pack(const int32_t* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);

template <class T>
MOE_INLINE T stored_value(const uint8_t* tile, int row, int32_t col) {
  T value;
  __builtin_memcpy(&value, tile + (int64_t{col} * kTileRows + row) * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

struct F32Format {
  static constexpr WeightFormat info = {
      .name = "f32",
      .tile_bytes = four_byte_tile_bytes,
      .read_row = f32_read_row,
      .pack_values = f32_pack,
      .find_invalid = f32_find_invalid,
      .invalid = "NaN or infinity",
      .random_tile = f32_random_tile,
  };
  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    return stored_value<float>(tile, row, col);
  }
};

struct Bf16Format {
  static constexpr WeightFormat info = {
      .name = "bf16",
      .tile_bytes = two_byte_tile_bytes,
      .read_row = bf16_read_row,
      .pack_values = bf16_pack,
      .find_invalid = bf16_find_invalid,
      .invalid = "NaN or infinity",
      .random_tile = bf16_random_tile,
  };
  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    return bf16_to_f32(stored_value<uint16_t>(tile, row, col));
  }
};

struct F16Format {
  static constexpr WeightFormat info = {
      .name = "f16",
      .tile_bytes = two_byte_tile_bytes,
      .read_row = f16_read_row,
      .pack_values = f16_pack,
      .find_invalid = f16_find_invalid,
      .invalid = "NaN or infinity",
      .random_tile = f16_random_tile,
  };
  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    return f16_to_f32(stored_value<uint16_t>(tile, row, col));
  }
};

struct I32Format {
  static constexpr WeightFormat info = {
      .name = "i32",
      .table = true,
      .tile_bytes = four_byte_tile_bytes,
  };
  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    return static_cast<float>(stored_value<int32_t>(tile, row, col));
  }
};

}  // namespace moe
