#pragma once
// How the four-bit formats lie in a tile (quant/README.md). Plain C headers only: the files of
// kernels/cpu/isa include this.

#include "quant/format.h"
#include "quant/half.h"

namespace moe {

/// Inputs that share a scale, and the bytes of their codes in a tile.
inline constexpr int kFourBitGroup = 32;
inline constexpr int kFourBitGroupBytes = kFourBitGroup / 2 * kTileRows;

/// What the 64 bytes in front of the codes hold for each row and group.
enum class GroupScale : uint8_t {
  kF16,         // an f16
  kF16Minimum,  // an f16 and the f16 that is added
  kPowerOfTwo,  // a byte b for 2^(b - 128); 255 is not allowed
};

/// Groups that one such block of 64 bytes serves.
constexpr int four_bit_groups(GroupScale scale) {
  return scale == GroupScale::kF16 ? 2 : scale == GroupScale::kF16Minimum ? 1 : 4;
}

/// Eight values of a table, the first in the lowest byte.
constexpr uint64_t table_word(const int (&values)[8]) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint64_t{static_cast<uint8_t>(values[i])} << (8 * i);
  return word;
}

/// The byte of a power of two as that number.
MOE_INLINE float power_of_two(uint8_t byte) {
  return bits_to_f32(byte < 2 ? uint32_t{0x200000} << byte : (uint32_t{byte} - 1) << 23);
}

/// Where groups lie in a tile, and their scales.
template <GroupScale kScale>
struct FourBitGroups {
  static constexpr GroupScale kScales = kScale;
  static constexpr bool kMinimums = kScale == GroupScale::kF16Minimum;
  static constexpr int kGroups = four_bit_groups(kScale);
  static constexpr int64_t kSegmentBytes = kBlockBytes + int64_t{kGroups} * kFourBitGroupBytes;

  /// Where a group's codes lie in a tile, and the block with its scales.
  MOE_INLINE int64_t codes_at(int32_t group) {
    return group / kGroups * kSegmentBytes + kBlockBytes + group % kGroups * kFourBitGroupBytes;
  }
  MOE_INLINE int64_t scales_at(int32_t group) { return group / kGroups * kSegmentBytes; }

  MOE_INLINE float scale(const uint8_t* tile, int row, int32_t group) {
    const uint8_t* block = tile + scales_at(group);
    const int at = group % kGroups * kTileRows + row;
    return kScale == GroupScale::kPowerOfTwo ? power_of_two(block[at]) : half_at(block, at);
  }
  MOE_INLINE float minimum(const uint8_t* tile, int row, int32_t group) {
    if (kScale != GroupScale::kF16Minimum) return 0.0f;
    return half_at(tile + scales_at(group), kTileRows + row);
  }

 private:
  MOE_INLINE float half_at(const uint8_t* block, int at) {
    uint16_t bits;
    __builtin_memcpy(&bits, block + 2 * at, sizeof bits);
    return f16_to_f32(bits);
  }
};

/// A format by its scales and the values of codes 0..7 and 8..15.
template <GroupScale kScale, uint64_t kLow, uint64_t kHigh>
struct FourBitLayout : FourBitGroups<kScale> {
  static constexpr uint64_t kLowValues = kLow;
  static constexpr uint64_t kHighValues = kHigh;

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const int32_t in_group = col % kFourBitGroup;
    const uint8_t* codes = tile + FourBitGroups<kScale>::codes_at(col / kFourBitGroup);
    const uint8_t byte = codes[in_group / 8 * kBlockBytes + row * 4 + col % 4];
    const int code = byte >> (in_group % 8 / 4 * 4) & 15;
    return static_cast<int8_t>((code < 8 ? kLow : kHigh) >> (code % 8 * 8) & 255);
  }
};

/// -8..7, each group with an f16 scale: also GGUF's Q4_0.
using Int4Layout = FourBitLayout<GroupScale::kF16, table_word({-8, -7, -6, -5, -4, -3, -2, -1}),
                                 table_word({0, 1, 2, 3, 4, 5, 6, 7})>;

/// 0..15, with an f16 scale and an f16 minimum: also GGUF's Q4_1.
using Int4MinLayout = FourBitLayout<GroupScale::kF16Minimum, table_word({0, 1, 2, 3, 4, 5, 6, 7}),
                                    table_word({8, 9, 10, 11, 12, 13, 14, 15})>;

/// E2M1 floats, doubled; half the scale of MXFP4 (OCP Microscaling Formats 1.0).
using Fp4Layout = FourBitLayout<GroupScale::kPowerOfTwo, table_word({0, 1, 2, 3, 4, 6, 8, 12}),
                                table_word({0, -1, -2, -3, -4, -6, -8, -12})>;

/// The values of GGUF's IQ4_NL, closer together around 0.
using Nl4Layout =
    FourBitLayout<GroupScale::kF16, table_word({-127, -104, -83, -65, -49, -35, -22, -10}),
                  table_word({1, 13, 25, 38, 53, 69, 89, 113})>;

/// NF4 of bitsandbytes (QLoRA, arXiv 2305.14314): its table of floats, whose ends are -1 and 1,
/// times kNf4Scale, rounded. Of all factors this one leaves the smallest error in normal weights.
inline constexpr float kNf4Scale = 124.117f;
using Nf4Layout =
    FourBitLayout<GroupScale::kF16, table_word({-124, -86, -65, -49, -35, -23, -11, 0}),
                  table_word({10, 20, 31, 42, 55, 70, 90, 124})>;

}  // namespace moe
