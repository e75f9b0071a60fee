// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of ternary2.
#include "quant/ternary2.h"

#include <cstring>

#include "quant/block_scan.h"
#include "quant/random.h"

namespace moe {

size_t ternary2_tile_bytes(int64_t cols) {
  return static_cast<size_t>((cols + kTernary2Cols - 1) / kTernary2Cols) * kBlockBytes;
}

void ternary2_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  int32_t col = 0;
  for (; col + kTernary2Cols <= cols; col += kTernary2Cols, tile += kBlockBytes) {
    const uint8_t* bytes = tile + row * 4;
    for (int i = 0; i < kTernary2Cols; ++i) {
      out[col + i] = static_cast<float>((bytes[i % 4] >> (i / 4 * 2) & 3) - 1);
    }
  }
  for (int32_t i = 0; col + i < cols; ++i)
    out[col + i] = Ternary2Format::element(tile, cols, row, i);
}

void ternary2_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  std::memset(tile, 0x55, ternary2_tile_bytes(cols));  // every code 0
  for (int row = 0; row < n_rows; ++row) {
    const int8_t* source = codes + row * ld;
    uint8_t* bytes = tile + row * 4;
    int32_t col = 0;
    for (; col + kTernary2Cols <= cols; col += kTernary2Cols, bytes += kBlockBytes) {
      uint32_t fields[4];  // four codes each: columns 0..3, 4..7 ...
      std::memcpy(fields, source + col, sizeof fields);
      uint32_t packed = 0;
      for (int f = 0; f < 4; ++f) {
        packed |= (((fields[f] & 0x03030303u) + 0x01010101u) & 0x03030303u) << (2 * f);
      }
      std::memcpy(bytes, &packed, sizeof packed);
    }
    for (int32_t i = 0; col + i < cols; ++i) {
      const int shift = 2 * (i / 4);
      bytes[i % 4] =
          static_cast<uint8_t>((bytes[i % 4] & ~(3 << shift)) | ((source[col + i] + 1) << shift));
    }
  }
}

int64_t ternary2_find_invalid(const uint8_t* tile, size_t bytes) {
  return find_block(tile, bytes, [](uint64_t v) { return v & (v >> 1) & 0x5555555555555555u; });
}

// Half of the codes are 0.
int8_t ternary2_random_code(uint8_t byte) {
  return static_cast<int8_t>(byte < 64 ? -1 : (byte >= 192 ? 1 : 0));
}

void ternary2_random_tile(Random& random, size_t bytes, float, uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t v = random.next();
    v &= ~((v & (v >> 1) & 0x5555555555555555u) << 1);  // a field of 3 becomes 1, weight 0
    std::memcpy(tile + i, &v, 8);
  }
}

}  // namespace moe
