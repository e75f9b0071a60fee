// SPDX-License-Identifier: MIT
#pragma once
// Writes tiles of the four-bit formats: for four_bit.cpp and four_bit_quantise.cpp.

#include <cstdlib>
#include <cstring>

#include "quant/factors.h"
#include "quant/four_bit.h"

namespace moe {

inline int value_of(const FourBitKind& kind, int code) {
  return static_cast<int8_t>((code < 8 ? kind.low : kind.high) >> (code % 8 * 8) & 255);
}

/// The code of every value, -128 first; the lowest code of equal values. Without a value 0, the one
/// of smallest magnitude represents it.
struct Codes {
  uint8_t of[256] = {};
  bool whole =
      true;  // the values are 16 consecutive ones: a code is the value's low bits + of[128]
  explicit Codes(const FourBitKind& kind) {
    int smallest = 128;
    for (int code = 15; code >= 0; --code) {
      const int value = value_of(kind, code);
      whole = whole && value == value_of(kind, 0) + code;
      of[value + 128] = static_cast<uint8_t>(code);
      if (std::abs(value) > smallest) continue;
      smallest = std::abs(value);
      of[128] = static_cast<uint8_t>(code);
    }
  }
};

inline constexpr int kMostGroups = groups_of_segment(GroupScale::kSixBits);

inline int64_t segment_bytes(const FourBitKind& kind) {
  return scale_bytes(kind.scale) + int64_t{groups_of_segment(kind.scale)} * kFourBitGroupBytes;
}

inline int32_t n_segments(const FourBitKind& kind, int32_t cols) {
  const int32_t inputs = groups_of_segment(kind.scale) * kTileGroup;
  return (cols + inputs - 1) / inputs;
}

inline uint8_t* codes_of_group(const FourBitKind& kind, uint8_t* tile, int32_t group) {
  const int32_t n = groups_of_segment(kind.scale);
  return tile + group / n * segment_bytes(kind) + scale_bytes(kind.scale) +
         group % n * kFourBitGroupBytes;
}

inline uint8_t power_byte(float power) {
  const uint32_t bits = f32_to_bits(power);
  if (bits < 0x800000u) return bits < 0x400000u ? uint8_t{0} : uint8_t{1};
  return static_cast<uint8_t>((bits >> 23 & 255) + 1);
}

/// Writes the scales, and minimums, of n groups of a row of segment `s`, rounded to the stored
/// type.
inline void put_scales(const FourBitKind& kind, uint8_t* tile, int row, int32_t s,
                       const float* scales, const float* minimums, int n) {
  uint8_t* to = tile + s * segment_bytes(kind);
  if (kind.scale == GroupScale::kSixBits) {
    return put_six_bits(to, row, factors_of(kSixBitFactors, scales, nullptr, n),
                        factors_of(kSixBitFactors, minimums, nullptr, n));
  }
  for (int g = 0; g < n; ++g) {
    const int at = g * kTileRows + row;
    if (kind.scale == GroupScale::kPowerOfTwo) {
      to[at] = power_byte(scales[g]);
    } else {
      put_half(to, at, scales[g]);
    }
  }
  if (has_minimum(kind.scale)) put_half(to, kTileRows + row, minimums[0]);
}

/// The codes of eight values, a byte each.
inline uint64_t codes_of_eight(const Codes& code, const int8_t* values) {
  uint64_t word = 0;
  if (code.whole) {
    std::memcpy(&word, values, sizeof word);
    return (word & 0x0F0F0F0F0F0F0F0Fu) ^ code.of[128] * 0x0101010101010101u;
  }
  uint8_t codes[8];
  for (int i = 0; i < 8; ++i) codes[i] = code.of[values[i] + 128];
  std::memcpy(&word, codes, sizeof word);
  return word;
}

/// Writes the codes of n values (at most a group), and those of 0 behind them.
inline void put_codes(const FourBitKind& kind, const Codes& code, const int8_t* values, int32_t n,
                      int row, int32_t group, uint8_t* tile) {
  int8_t padded[kTileGroup] = {};
  if (n < kTileGroup) {
    std::memcpy(padded, values, static_cast<size_t>(n));
    values = padded;
  }
  uint8_t* bytes = codes_of_group(kind, tile, group) + row * 4;
  for (int i = 0; i < kTileGroup; i += 8, bytes += kBlockBytes) {
    const uint64_t codes = codes_of_eight(code, values + i);
    const auto packed = static_cast<uint32_t>(codes | codes >> 28);
    std::memcpy(bytes, &packed, sizeof packed);
  }
}

/// A padding tile: value 0 or its substitute, scales 1 and minimums 0.
inline void clear_tile(const FourBitKind& kind, const Codes& code, int32_t cols, uint8_t* tile) {
  std::memset(tile, code.of[128] * 17, four_bit_tile_bytes(kind, cols));
  constexpr float kOnes[kMostGroups] = {1, 1, 1, 1, 1, 1, 1, 1};
  constexpr float kZeros[kMostGroups] = {};
  constexpr Factors kOne = {1.0f, {1, 1, 1, 1, 1, 1, 1, 1}};
  const int32_t n = groups_of_segment(kind.scale);
  for (int32_t s = 0; s < n_segments(kind, cols); ++s) {
    for (int row = 0; row < kTileRows; ++row) {
      if (kind.scale == GroupScale::kSixBits) {
        put_six_bits(tile + s * segment_bytes(kind), row, kOne, {});
      } else {
        put_scales(kind, tile, row, s, kOnes, kZeros, n);
      }
    }
  }
}

}  // namespace moe
