// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of ternary3, whose bytes hold five base-3 digits.
#include "quant/ternary3.h"

#include <algorithm>
#include <cstring>

#include "quant/block_scan.h"
#include "quant/random.h"

namespace moe {
namespace {

constexpr int kPowers[5] = {1, 3, 9, 27, 81};
constexpr int kAllZeroCodes = 1 + 3 + 9 + 27 + 81;  // every digit 1

// The weights of every possible byte.
struct Weights {
  int8_t of[256][5];
  constexpr Weights() : of() {
    for (int byte = 0; byte < 256; ++byte) {
      for (int f = 0; f < 5; ++f) of[byte][f] = static_cast<int8_t>(byte / kPowers[f] % 3 - 1);
    }
  }
};
constexpr Weights kWeights;

// Calls visit(first column, columns) for each block.
template <class Visit>
void for_each_block(int32_t cols, Visit visit) {
  for (int32_t from = 0; from < cols; from += kTernary3Segment) {
    const int32_t to = std::min(from + kTernary3Segment, cols);
    for (int32_t col = from; col < to; col += kTernary3Cols) {
      visit(col, std::min(kTernary3Cols, to - col));
    }
  }
}

}  // namespace

size_t ternary3_tile_bytes(int64_t cols) {
  const int64_t tail = cols % kTernary3Segment;
  const int64_t blocks =
      cols / kTernary3Segment * kTernary3Blocks + (tail + kTernary3Cols - 1) / kTernary3Cols;
  return static_cast<size_t>(blocks) * kBlockBytes;
}

void ternary3_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  const uint8_t* bytes = tile + row * 4;
  for_each_block(cols, [&](int32_t col, int32_t n) {
    float block[kTernary3Cols];
    for (int j = 0; j < 4; ++j) {
      const int8_t* weights = kWeights.of[bytes[j]];
      for (int f = 0; f < 5; ++f) block[4 * f + j] = weights[f];
    }
    std::memcpy(out + col, block, static_cast<size_t>(n) * sizeof(float));
    bytes += kBlockBytes;
  });
}

void ternary3_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  std::memset(tile, kAllZeroCodes, ternary3_tile_bytes(cols));
  for (int row = 0; row < n_rows; ++row) {
    const int8_t* source = codes + row * ld;
    uint8_t* bytes = tile + row * 4;
    for_each_block(cols, [&](int32_t col, int32_t n) {
      uint32_t fields[5] = {};  // four codes each: columns 0..3, 4..7 ...
      std::memcpy(fields, source + col, static_cast<size_t>(n));
      uint32_t packed = 0;
      for (int f = 4; f >= 0; --f) {
        packed = packed * 3 + (((fields[f] & 0x03030303u) + 0x01010101u) & 0x03030303u);
      }
      std::memcpy(bytes, &packed, sizeof packed);
      bytes += kBlockBytes;
    });
  }
}

int64_t ternary3_find_invalid(const uint8_t* tile, size_t bytes) {
  // 243 = 128 + 115: its high bit is set and the other seven bits plus 13 carry into that bit.
  return find_block(tile, bytes, [](uint64_t v) {
    const uint64_t carry = (v & 0x7F7F7F7F7F7F7F7Fu) + 0x0D0D0D0D0D0D0D0Du;
    return v & carry & 0x8080808080808080u;
  });
}

void ternary3_random_tile(Random& random, size_t bytes, float, uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  for (size_t i = 0; i < bytes; ++i) tile[i] = static_cast<uint8_t>((tile[i] * 243u) >> 8);
  // The last block of a segment ends in four padding trits: the top trit of each byte is code 1.
  for (size_t block = kTernary3Blocks - 1; block < bytes / kBlockBytes; block += kTernary3Blocks) {
    uint8_t* last = tile + block * kBlockBytes;
    for (int i = 0; i < kBlockBytes; ++i) last[i] = static_cast<uint8_t>(last[i] % 81 + 81);
  }
}

}  // namespace moe
