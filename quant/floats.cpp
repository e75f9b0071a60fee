#include "quant/floats.h"

#include <cstring>

#include "quant/block_scan.h"
#include "quant/half.h"

namespace moe {
namespace {

template <class T>
T stored(const uint8_t* tile, int row, int32_t col) {
  T value;
  std::memcpy(
      &value,
      tile + (size_t{kTileRows} * static_cast<size_t>(col) + static_cast<size_t>(row)) * sizeof(T),
      sizeof(T));
  return value;
}

// Fills a tile with convert(value), rows beyond n_rows with 0.
template <class T, class Source, class Convert>
void pack(const Source* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile,
          Convert convert) {
  for (int32_t col = 0; col < cols; ++col) {
    T column[kTileRows] = {};
    for (int row = 0; row < n_rows; ++row) column[row] = convert(values[row * ld + col]);
    std::memcpy(tile + sizeof column * static_cast<size_t>(col), column, sizeof column);
  }
}

}  // namespace

size_t four_byte_tile_bytes(int64_t cols) { return static_cast<size_t>(cols) * kTileRows * 4; }
size_t two_byte_tile_bytes(int64_t cols) { return static_cast<size_t>(cols) * kTileRows * 2; }

float f32_element(const uint8_t* tile, int32_t, int row, int32_t col) {
  return stored<float>(tile, row, col);
}
float bf16_element(const uint8_t* tile, int32_t, int row, int32_t col) {
  return bf16_to_f32(stored<uint16_t>(tile, row, col));
}
float f16_element(const uint8_t* tile, int32_t, int row, int32_t col) {
  return f16_to_f32(stored<uint16_t>(tile, row, col));
}
float i32_element(const uint8_t* tile, int32_t, int row, int32_t col) {
  return static_cast<float>(stored<int32_t>(tile, row, col));
}

void f32_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = f32_element(tile, cols, row, col);
}
void bf16_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = bf16_element(tile, cols, row, col);
}
void f16_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = f16_element(tile, cols, row, col);
}
void i32_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = i32_element(tile, cols, row, col);
}

void f32_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  pack<float>(values, ld, n_rows, cols, tile, [](float v) { return v; });
}
void bf16_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  pack<uint16_t>(values, ld, n_rows, cols, tile, [](float v) { return f32_to_bf16(v); });
}
void f16_pack(const float* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  pack<uint16_t>(values, ld, n_rows, cols, tile, [](float v) { return f32_to_f16(v); });
}
void i32_pack(const int32_t* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  pack<int32_t>(values, ld, n_rows, cols, tile, [](int32_t v) { return v; });
}

// NaN and infinity have all exponent bits set: adding one to them carries into the sign's place.
int64_t f32_find_invalid(const uint8_t* tile, size_t bytes) {
  return find_block(tile, bytes, [](uint64_t v) {
    return ((v & 0x7F8000007F800000u) + 0x0080000000800000u) & 0x8000000080000000u;
  });
}
int64_t bf16_find_invalid(const uint8_t* tile, size_t bytes) {
  return find_block(tile, bytes, [](uint64_t v) {
    return ((v & 0x7F807F807F807F80u) + 0x0080008000800080u) & 0x8000800080008000u;
  });
}
int64_t f16_find_invalid(const uint8_t* tile, size_t bytes) {
  return find_block(tile, bytes, [](uint64_t v) {
    return ((v & 0x7C007C007C007C00u) + 0x0400040004000400u) & 0x8000800080008000u;
  });
}

}  // namespace moe
