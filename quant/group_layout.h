#pragma once
// How formats whose scales lie in the tile do so (quant/README.md): segments of a block of 64 bytes
// with the scales of some groups, then the codes of these groups. Plain C headers only: the files
// of kernels/cpu/isa include this.

#include "quant/format.h"
#include "quant/half.h"

namespace moe {

/// Inputs that share a scale in the tile.
inline constexpr int kTileGroup = 32;

/// What the 64 bytes in front of the codes hold for each row and group.
enum class GroupScale : uint8_t {
  kF16,         // an f16
  kF16Minimum,  // an f16 and the f16 that is added
  kPowerOfTwo,  // a byte b for 2^(b - 128); 255 is not allowed
};

/// Groups that one such block of 64 bytes serves.
constexpr int groups_of_block(GroupScale scale) {
  return scale == GroupScale::kF16 ? 2 : scale == GroupScale::kF16Minimum ? 1 : 4;
}

/// The byte of a power of two as that number.
MOE_INLINE float power_of_two(uint8_t byte) {
  return bits_to_f32(byte < 2 ? uint32_t{0x200000} << byte : (uint32_t{byte} - 1) << 23);
}

/// Where groups lie in a tile, each with kBits bits of codes a weight, and their scales.
template <GroupScale kScale, int kBits>
struct GroupsInTile {
  static constexpr GroupScale kScales = kScale;
  static constexpr bool kMinimums = kScale == GroupScale::kF16Minimum;
  static constexpr int kGroups = groups_of_block(kScale);
  static constexpr int kGroupBytes = kTileGroup * kBits / 8 * kTileRows;
  static constexpr int64_t kSegmentBytes = kBlockBytes + int64_t{kGroups} * kGroupBytes;

  /// Where a group's codes lie in a tile, and the block with its scales.
  MOE_INLINE int64_t codes_at(int32_t group) {
    return group / kGroups * kSegmentBytes + kBlockBytes + group % kGroups * kGroupBytes;
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

}  // namespace moe
