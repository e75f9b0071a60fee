// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of every four-bit format; a FourBitKind says how
// they differ.
#include "quant/four_bit.h"

#include <cmath>
#include <cstring>

#include "quant/block_scan.h"
#include "quant/four_bit_tile.h"
#include "quant/random.h"

namespace moe {
size_t four_bit_tile_bytes(const FourBitKind& kind, int64_t cols) {
  const int64_t groups = (cols + kTileGroup - 1) / kTileGroup;
  const int64_t n = groups_of_segment(kind.scale);
  return static_cast<size_t>((groups + n - 1) / n * scale_bytes(kind.scale) +
                             groups * kFourBitGroupBytes);
}

void four_bit_read_row(const FourBitKind& kind, const uint8_t* tile, int32_t cols, int row,
                       float* out) {
  float values[16];
  bool whole = true;  // consecutive
  for (int code = 0; code < 16; ++code) {
    values[code] = static_cast<float>(value_of(kind, code));
    whole = whole && value_of(kind, code) == value_of(kind, 0) + code;
  }
  for (int32_t begin = 0; begin < cols; begin += kTileGroup) {
    const uint8_t* bytes =
        codes_of_group(kind, const_cast<uint8_t*>(tile), begin / kTileGroup) + row * 4;
    uint8_t codes[kTileGroup];
    for (int i = 0; i < kTileGroup; i += 8, bytes += kBlockBytes) {
      uint32_t packed;
      std::memcpy(&packed, bytes, sizeof packed);
      const uint32_t low = packed & 0x0F0F0F0Fu, high = packed >> 4 & 0x0F0F0F0Fu;
      std::memcpy(codes + i, &low, sizeof low);
      std::memcpy(codes + i + 4, &high, sizeof high);
    }
    float weights[kTileGroup];
    if (whole) {
      for (int i = 0; i < kTileGroup; ++i) weights[i] = static_cast<float>(codes[i]) + values[0];
    } else {
      for (int i = 0; i < kTileGroup; ++i) weights[i] = values[codes[i]];
    }
    const int32_t n = cols - begin < kTileGroup ? cols - begin : kTileGroup;
    std::memcpy(out + begin, weights, static_cast<size_t>(n) * sizeof(float));
  }
}

void four_bit_pack_codes(const FourBitKind& kind, const int8_t* codes, int64_t ld, int n_rows,
                         int32_t cols, uint8_t* tile) {
  const Codes code(kind);
  clear_tile(kind, code, cols, tile);
  const int32_t n_groups = (cols + kTileGroup - 1) / kTileGroup;
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t group = 0; group < n_groups; ++group) {
      const int32_t begin = group * kTileGroup;
      const int32_t n = cols - begin < kTileGroup ? cols - begin : kTileGroup;
      put_codes(kind, code, codes + row * ld + begin, n, row, group, tile);
    }
  }
}

void four_bit_pack_scales(const FourBitKind& kind, const float* scales, const float* minimums,
                          int n_rows, int32_t cols, uint8_t* tile) {
  constexpr float kZeros[kMostGroups] = {};
  const int32_t n_groups = (cols + kTileGroup - 1) / kTileGroup;
  const int32_t n = groups_of_segment(kind.scale);
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t g = 0; g < n_groups; g += n) {
      const int64_t at = int64_t{row} * n_groups + g;
      put_scales(kind, tile, row, g / n, scales + at, minimums != nullptr ? minimums + at : kZeros,
                 n_groups - g < n ? n_groups - g : n);
    }
  }
}

int64_t four_bit_find_invalid(const FourBitKind& kind, const uint8_t* tile, size_t bytes) {
  const auto step = static_cast<size_t>(segment_bytes(kind));
  const bool powers = kind.scale == GroupScale::kPowerOfTwo;
  for (size_t at = 0; at < bytes; at += step) {
    const int64_t bad =
        powers ? find_block(tile + at, kBlockBytes,
                            [](uint64_t v) {
                              return (~v - 0x0101010101010101u) & v & 0x8080808080808080u;
                            })
               : find_block(tile + at, kBlockBytes, infinite_halves);
    if (bad >= 0) return static_cast<int64_t>(at / kBlockBytes);
  }
  return -1;
}

int8_t four_bit_random_code(const FourBitKind& kind, uint8_t byte) {
  return static_cast<int8_t>(value_of(kind, byte & 15));
}

namespace {

// Scales of a segment near `even`, with minimums of -middle * scale.
void random_scales(const FourBitKind& kind, Random& random, float even, float middle, int32_t s,
                   uint8_t* tile) {
  if (kind.scale == GroupScale::kSixBits) {
    random_six_bits(random, even, middle, tile + s * segment_bytes(kind));
    return;
  }
  const int n = groups_of_segment(kind.scale);
  float scales[kTileRows][kMostGroups], lows[kTileRows][kMostGroups];
  for (int g = 0; g < n; ++g) {
    for (int row = 0; row < kTileRows; ++row) {
      scales[row][g] = even * (0.9f + 0.2f * random.uniform());
      lows[row][g] = -middle * scales[row][g];
    }
  }
  for (int row = 0; row < kTileRows; ++row) {
    put_scales(kind, tile, row, s, scales[row], lows[row], n);
  }
}

}  // namespace

// Zero-mean weights with variance amplitude^2 / 3.
void four_bit_random_tile(const FourBitKind& kind, Random& random, size_t bytes, float amplitude,
                          uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  const Codes codes(kind);
  uint8_t packed[256];  // two values may be equal: -0
  for (int byte = 0; byte < 256; ++byte) {
    const int low = codes.of[value_of(kind, byte & 15) + 128];
    packed[byte] = static_cast<uint8_t>(low | codes.of[value_of(kind, byte >> 4) + 128] << 4);
  }
  if (packed[8] != 8) {
    for (size_t i = 0; i < bytes; ++i) tile[i] = packed[tile[i]];
  }
  const bool minimums = has_minimum(kind.scale);
  float squares = 0, sum = 0;
  for (int code = 0; code < 16; ++code) {
    const auto v = static_cast<float>(value_of(kind, code));
    squares += v * v;
    sum += v;
  }
  const float middle = minimums ? sum / 16 : 0.0f;
  const float even = amplitude / std::sqrt(3 * (squares / 16 - middle * middle));
  const auto segments = static_cast<int32_t>(bytes / static_cast<size_t>(segment_bytes(kind)));
  for (int32_t s = 0; s < segments; ++s) random_scales(kind, random, even, middle, s, tile);
}

}  // namespace moe
