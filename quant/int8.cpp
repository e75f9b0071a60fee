// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of int8.
#include "quant/int8.h"

#include <cstring>

#include "quant/block_scan.h"
#include "quant/random.h"

namespace moe {

size_t int8_tile_bytes(int64_t cols) {
  return static_cast<size_t>((cols + kInt8Cols - 1) / kInt8Cols) * kBlockBytes;
}

void int8_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  int32_t col = 0;
  const uint8_t* lane = tile + row * kInt8Cols;
  for (; col + kInt8Cols <= cols; col += kInt8Cols, lane += kBlockBytes) {
    int8_t codes[kInt8Cols];
    std::memcpy(codes, lane, sizeof codes);
    for (int i = 0; i < kInt8Cols; ++i) out[col + i] = codes[i];
  }
  for (; col < cols; ++col) out[col] = Int8Format::element(tile, cols, row, col);
}

void int8_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  std::memset(tile, 0, int8_tile_bytes(cols));
  for (int row = 0; row < n_rows; ++row) {
    const int8_t* source = codes + row * ld;
    uint8_t* lane = tile + row * kInt8Cols;
    int32_t col = 0;
    for (; col + kInt8Cols <= cols; col += kInt8Cols, lane += kBlockBytes) {
      std::memcpy(lane, source + col, kInt8Cols);
    }
    std::memcpy(lane, source + col, static_cast<size_t>(cols - col));
  }
}

int64_t int8_find_invalid(const uint8_t* tile, size_t bytes) {
  return find_block(tile, bytes, [](uint64_t v) {
    const uint64_t zero_if_bad = v ^ 0x8080808080808080u;
    return (zero_if_bad - 0x0101010101010101u) & ~zero_if_bad & 0x8080808080808080u;
  });
}

int8_t int8_random_code(uint8_t byte) { return static_cast<int8_t>(byte == 0 ? -127 : byte - 128); }

void int8_random_tile(Random& random, size_t bytes, float, uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  for (size_t i = 0; i < bytes; ++i) tile[i] = tile[i] == 0x80 ? uint8_t{0} : tile[i];
}

}  // namespace moe
