#include "quant/ternary2.h"

#include <cstring>

#include "quant/block_scan.h"

namespace moe {

size_t ternary2_tile_bytes(int64_t cols) {
  return static_cast<size_t>((cols + kTernary2Cols - 1) / kTernary2Cols) * kBlockBytes;
}

float ternary2_element(const uint8_t* tile, int32_t, int row, int32_t col) {
  const uint8_t byte = tile[col / kTernary2Cols * kBlockBytes + row * 4 + col % 4];
  const int field = col % kTernary2Cols / 4;
  return static_cast<float>(((byte >> (2 * field)) & 3) - 1);
}

void ternary2_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t col = 0; col < cols; ++col) out[col] = ternary2_element(tile, cols, row, col);
}

void ternary2_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  std::memset(tile, 0x55, ternary2_tile_bytes(cols));  // every code 0
  for (int row = 0; row < n_rows; ++row) {
    const int8_t* source = codes + row * ld;
    for (int32_t col = 0; col < cols; ++col) {
      uint8_t& byte = tile[col / kTernary2Cols * kBlockBytes + row * 4 + col % 4];
      const int shift = 2 * (col % kTernary2Cols / 4);
      byte = static_cast<uint8_t>((byte & ~(3 << shift)) | ((source[col] + 1) << shift));
    }
  }
}

int64_t ternary2_find_invalid(const uint8_t* tile, size_t bytes) {
  return find_block(tile, bytes, [](uint64_t v) { return v & (v >> 1) & 0x5555555555555555u; });
}

}  // namespace moe
