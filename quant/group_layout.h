// SPDX-License-Identifier: MIT
#pragma once
// Tile layout of formats with scales in the tile (quant/README.md): segments of 64-byte blocks with
// the scales of some groups, then the codes of these groups. Plain C headers only: the files of
// kernels/cpu/isa include this.

#include "quant/format.h"
#include "quant/half.h"

namespace moe {

/// Inputs that share a scale in the tile; in int2_k, int3_k and int6_k half as many.
inline constexpr int kTileGroup = 32;
static_assert(kTileGroup == kActGroup);

/// Scales of a segment, per row and group.
enum class GroupScale : uint8_t {
  kF16,         // an f16
  kF16Minimum,  // an f16 scale and an f16 minimum
  kPowerOfTwo,  // a byte b for 2^(b - 128); 255 is invalid
  kSixBits,     // six-bit factors of an f16 scale and an f16 minimum that the segment shares
  kEightBits,   // signed bytes, factors of an f16 that the segment shares
  kFourBits,    // four-bit factors of an f16 scale and an f16 minimum that the segment shares
  kSigned6,     // signed six-bit factors of an f16 that the segment shares
  kUnsigned4,   // four-bit factors of an f16 that 8 groups share
};

/// Groups per segment.
constexpr int groups_of_segment(GroupScale scale) {
  switch (scale) {
    case GroupScale::kF16:
      return 2;
    case GroupScale::kF16Minimum:
      return 1;
    case GroupScale::kPowerOfTwo:
      return 4;
    case GroupScale::kSixBits:
      return 8;
    case GroupScale::kEightBits:
    case GroupScale::kFourBits:
    case GroupScale::kSigned6:
    case GroupScale::kUnsigned4:
      return 16;
  }
  return 1;
}

/// Bytes of a segment's scales.
constexpr int scale_bytes(GroupScale scale) {
  switch (scale) {
    case GroupScale::kSixBits:
    case GroupScale::kSigned6:
      return 4 * kBlockBytes;
    case GroupScale::kEightBits:
    case GroupScale::kFourBits:
      return 5 * kBlockBytes;
    case GroupScale::kUnsigned4:
      return 3 * kBlockBytes;
    default:
      return kBlockBytes;
  }
}

constexpr bool has_minimum(GroupScale scale) {
  return scale == GroupScale::kF16Minimum || scale == GroupScale::kSixBits ||
         scale == GroupScale::kFourBits;
}

/// Factors of kSixBits for group g of a segment and row r: the lower four bits of the scale's are
/// in bits 0..3 of byte kLow + 16 g + r of its scales, those of the minimum's in bits 4..7. Byte
/// kHigh + 16 (g % 4) + r has the upper two of each: bits 0..3 for g < 4, bits 4..7 for the others.
struct SixBitScales {
  static constexpr int kLow = kBlockBytes;
  static constexpr int kHigh = 3 * kBlockBytes;

  MOE_INLINE int scale_factor(const uint8_t* scales, int row, int g) {
    return (scales[kLow + kTileRows * g + row] & 15) | (high(scales, row, g) & 3) << 4;
  }
  MOE_INLINE int minimum_factor(const uint8_t* scales, int row, int g) {
    return scales[kLow + kTileRows * g + row] >> 4 | (high(scales, row, g) & 12) << 2;
  }

 private:
  MOE_INLINE int high(const uint8_t* scales, int row, int g) {
    return scales[kHigh + kTileRows * (g % 4) + row] >> (g / 4 * 4);
  }
};

/// Factors of kEightBits, signed: that of group g of a segment and row r is byte kFactors + 16 g +
/// r of its scales.
struct EightBitScales {
  static constexpr int kFactors = kBlockBytes;

  MOE_INLINE int factor(const uint8_t* scales, int row, int g) {
    return static_cast<int8_t>(scales[kFactors + kTileRows * g + row]);
  }
};

/// Factors of kFourBits for group g of a segment and row r: byte kFactors + 16 g + r of its scales
/// has the scale's in its lower half, the minimum's in the upper.
struct FourBitScales {
  static constexpr int kFactors = kBlockBytes;

  MOE_INLINE int scale_factor(const uint8_t* scales, int row, int g) {
    return scales[kFactors + kTileRows * g + row] & 15;
  }
  MOE_INLINE int minimum_factor(const uint8_t* scales, int row, int g) {
    return scales[kFactors + kTileRows * g + row] >> 4;
  }
};

/// Factors of kSigned6, two's complement. Four groups share three bytes per row: those of the first
/// three are the lower six bits of a byte each, that of the fourth the upper two bits of the three,
/// the first byte's lowest.
struct SignedSixBitScales {
  static constexpr int kFactors = kBlockBytes;

  /// Where 16 rows have the byte of group g, and its first one of the three.
  MOE_INLINE int byte_at(int g) { return kFactors + kTileRows * (g / 4 * 3 + g % 4); }
  MOE_INLINE int first_at(int g) { return kFactors + kTileRows * (g / 4 * 3); }

  MOE_INLINE int factor(const uint8_t* scales, int row, int g) {
    int bits = 0;
    if (g % 4 != 3) {
      bits = scales[byte_at(g) + row] & 63;
    } else {
      const uint8_t* bytes = scales + first_at(g) + row;
      bits = bytes[0] >> 6 | bytes[kTileRows] >> 6 << 2 | bytes[2 * kTileRows] >> 6 << 4;
    }
    return bits < 32 ? bits : bits - 64;
  }
};

/// Scales of kUnsigned4 for group g of a segment and row r: the f16 of groups 0..7 is at byte 2 r
/// of its scales, that of the others at byte 32 + 2 r. Byte kFactors + 16 (g / 2) + r has the
/// factor in its lower half for even g, in the upper half for odd.
struct Unsigned4Scales {
  static constexpr int kShared = 8;  // groups with one f16
  static constexpr int kFactors = kBlockBytes;

  MOE_INLINE int half_at(int row, int g) { return g / kShared * kTileRows + row; }
  MOE_INLINE int factor(const uint8_t* scales, int row, int g) {
    return scales[kFactors + kTileRows * (g / 2) + row] >> (g % 2 * 4) & 15;
  }
};

/// Decodes a power of two.
MOE_INLINE float power_of_two(uint8_t byte) {
  return bits_to_f32(byte < 2 ? uint32_t{0x200000} << byte : (uint32_t{byte} - 1) << 23);
}

/// Locates groups of kInputs in a tile, with kBits bits per code, and their scales.
template <GroupScale kScale, int kBits, int kInputs = kTileGroup>
struct GroupsInTile {
  static constexpr int kGroupInputs = kInputs;
  static constexpr GroupScale kScales = kScale;
  static constexpr bool kMinimums = has_minimum(kScale);
  static constexpr int kGroups = groups_of_segment(kScale);
  static constexpr int kScaleBytes = scale_bytes(kScale);
  static constexpr int kGroupBytes = kInputs * kBits / 8 * kTileRows;
  static constexpr int64_t kSegmentBytes = kScaleBytes + int64_t{kGroups} * kGroupBytes;

  /// Offset of a group's codes in a tile, and of its segment's scales.
  MOE_INLINE int64_t codes_at(int32_t group) {
    return group / kGroups * kSegmentBytes + kScaleBytes + group % kGroups * kGroupBytes;
  }
  MOE_INLINE int64_t scales_at(int32_t group) { return group / kGroups * kSegmentBytes; }

  MOE_INLINE float scale(const uint8_t* tile, int row, int32_t group) {
    const uint8_t* scales = tile + scales_at(group);
    const int g = group % kGroups;
    const int at = g * kTileRows + row;
    if constexpr (kScale == GroupScale::kPowerOfTwo) return power_of_two(scales[at]);
    if constexpr (kScale == GroupScale::kEightBits) {
      return half_at(scales, row) * static_cast<float>(EightBitScales::factor(scales, row, g));
    }
    if constexpr (kScale == GroupScale::kSigned6) {
      return half_at(scales, row) * static_cast<float>(SignedSixBitScales::factor(scales, row, g));
    }
    if constexpr (kScale == GroupScale::kFourBits) {
      return half_at(scales, row) * static_cast<float>(FourBitScales::scale_factor(scales, row, g));
    }
    if constexpr (kScale == GroupScale::kUnsigned4) {
      return half_at(scales, Unsigned4Scales::half_at(row, g)) *
             static_cast<float>(Unsigned4Scales::factor(scales, row, g));
    }
    if constexpr (kScale != GroupScale::kSixBits) return half_at(scales, at);
    return half_at(scales, row) * static_cast<float>(SixBitScales::scale_factor(scales, row, g));
  }
  MOE_INLINE float minimum(const uint8_t* tile, int row, int32_t group) {
    if constexpr (!kMinimums) return 0.0f;
    const uint8_t* scales = tile + scales_at(group);
    const float half = half_at(scales, kTileRows + row);
    const int g = group % kGroups;
    if constexpr (kScale == GroupScale::kFourBits) {
      return half * static_cast<float>(FourBitScales::minimum_factor(scales, row, g));
    }
    if constexpr (kScale != GroupScale::kSixBits) return half;
    return half * static_cast<float>(SixBitScales::minimum_factor(scales, row, g));
  }

 private:
  MOE_INLINE float half_at(const uint8_t* block, int at) {
    uint16_t bits;
    __builtin_memcpy(&bits, block + 2 * at, sizeof bits);
    return f16_to_f32(bits);
  }
};

}  // namespace moe
