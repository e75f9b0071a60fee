#pragma once
// Writes tiles of the four-bit formats: for four_bit.cpp and four_bit_quantise.cpp.

#include <cstdlib>
#include <cstring>

#include "quant/four_bit.h"

namespace moe {

inline int value_of(const FourBitKind& kind, int code) {
  return static_cast<int8_t>((code < 8 ? kind.low : kind.high) >> (code % 8 * 8) & 255);
}

/// The code of every value, -128 first; the lowest code of equal values. Without a value 0, the one
/// of smallest magnitude represents it.
struct Codes {
  uint8_t of[256] = {};
  explicit Codes(const FourBitKind& kind) {
    int smallest = 128;
    for (int code = 15; code >= 0; --code) {
      const int value = value_of(kind, code);
      of[value + 128] = static_cast<uint8_t>(code);
      if (std::abs(value) > smallest) continue;
      smallest = std::abs(value);
      of[128] = static_cast<uint8_t>(code);
    }
  }
};

inline int64_t segment_bytes(const FourBitKind& kind) {
  return kBlockBytes + int64_t{groups_of_block(kind.scale)} * kFourBitGroupBytes;
}

inline uint8_t* codes_of_group(const FourBitKind& kind, uint8_t* tile, int32_t group) {
  const int32_t n = groups_of_block(kind.scale);
  return tile + group / n * segment_bytes(kind) + kBlockBytes + group % n * kFourBitGroupBytes;
}

inline uint8_t power_byte(float power) {
  const uint32_t bits = f32_to_bits(power);
  if (bits < 0x800000u) return bits < 0x400000u ? uint8_t{0} : uint8_t{1};
  return static_cast<uint8_t>((bits >> 23 & 255) + 1);
}

inline void put_scale(const FourBitKind& kind, uint8_t* tile, int row, int32_t group, float scale,
                      float minimum) {
  const int32_t n = groups_of_block(kind.scale);
  uint8_t* block = tile + group / n * segment_bytes(kind);
  const int at = group % n * kTileRows + row;
  if (kind.scale == GroupScale::kPowerOfTwo) {
    block[at] = power_byte(scale);
    return;
  }
  const uint16_t halves[] = {f32_to_f16(scale), f32_to_f16(minimum)};
  std::memcpy(block + 2 * at, &halves[0], 2);
  if (kind.scale != GroupScale::kF16Minimum) return;
  std::memcpy(block + 2 * (kTileRows + row), &halves[1], 2);
}

/// Writes the codes of n values (at most a group).
inline void put_codes(const FourBitKind& kind, const Codes& code, const int8_t* values, int32_t n,
                      int row, int32_t group, uint8_t* tile) {
  uint8_t* bytes = codes_of_group(kind, tile, group) + row * 4;
  for (int32_t i = 0; i < n; ++i) {
    uint8_t& byte = bytes[i / 8 * kBlockBytes + i % 4];
    const int shift = i % 8 / 4 * 4;
    byte = static_cast<uint8_t>((byte & ~(15 << shift)) | code.of[values[i] + 128] << shift);
  }
}

/// A padding tile: value 0 or its substitute, scales 1 and minimums 0.
inline void clear_tile(const FourBitKind& kind, const Codes& code, int32_t cols, uint8_t* tile) {
  std::memset(tile, code.of[128] * 17, four_bit_tile_bytes(kind, cols));
  const int32_t n = groups_of_block(kind.scale);
  const int32_t n_groups = (cols + kTileGroup - 1) / kTileGroup;
  for (int32_t group = 0; group < (n_groups + n - 1) / n * n; ++group) {
    for (int row = 0; row < kTileRows; ++row) put_scale(kind, tile, row, group, 1.0f, 0.0f);
  }
}

}  // namespace moe
