// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of plain values.
#include "quant/floats.h"

#include <cstring>

#include "quant/block_scan.h"
#include "quant/half.h"
#include "quant/random.h"

namespace moe {
namespace {

// Fills a tile with convert(value); rows from n_rows on are 0.
template <class T, class Source, class Convert>
void pack(const Source* values, int64_t ld, int n_rows, int32_t cols, uint8_t* tile,
          Convert convert) {
  for (int32_t col = 0; col < cols; ++col) {
    T column[kTileRows] = {};
    for (int row = 0; row < n_rows; ++row) column[row] = convert(values[row * ld + col]);
    std::memcpy(tile + sizeof column * static_cast<size_t>(col), column, sizeof column);
  }
}

// Four 16-bit integers of each draw as floats in [-amplitude, amplitude).
template <class T, class F>
void fill_random(Random& random, size_t n_bytes, float amplitude, uint8_t* out, F&& convert) {
  const float step = amplitude / 32768.0f;
  const size_t n = n_bytes / sizeof(T);
  for (size_t i = 0; i < n; i += 4) {
    const uint64_t v = random.next();
    for (size_t j = 0; j < 4; ++j) {
      const auto r = static_cast<int16_t>(v >> (16 * j));
      const T value = convert(static_cast<float>(r) * step);
      std::memcpy(out + (i + j) * sizeof(T), &value, sizeof(T));
    }
  }
}

}  // namespace

size_t four_byte_tile_bytes(int64_t cols) { return static_cast<size_t>(cols) * kTileRows * 4; }
size_t two_byte_tile_bytes(int64_t cols) { return static_cast<size_t>(cols) * kTileRows * 2; }

void f32_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = F32Format::element(tile, cols, row, col);
}
void bf16_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = Bf16Format::element(tile, cols, row, col);
}
void f16_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = F16Format::element(tile, cols, row, col);
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

// NaN and infinity have all exponent bits set: adding one to them carries into the sign bit.
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
  return find_block(tile, bytes, infinite_halves);
}

void f32_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile) {
  fill_random<float>(random, bytes, amplitude, tile, [](float v) { return v; });
}
void bf16_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile) {
  fill_random<uint16_t>(random, bytes, amplitude, tile, [](float v) { return f32_to_bf16(v); });
}
void f16_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile) {
  fill_random<uint16_t>(random, bytes, amplitude, tile, [](float v) { return f32_to_f16(v); });
}

}  // namespace moe
