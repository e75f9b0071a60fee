#pragma once
// Tile layout of formats with scales in the tile (quant/README.md): segments of one 64-byte block
// with the scales of some groups, then the codes of these groups. Plain C headers only: the files
// of kernels/cpu/isa include this.

#include "quant/format.h"
#include "quant/half.h"

namespace moe {

/// Inputs that share a scale in the tile.
inline constexpr int kTileGroup = 32;
static_assert(kTileGroup == kActGroup);

/// Contents of the 64-byte scale block per row and group.
enum class GroupScale : uint8_t {
  kF16,         // an f16
  kF16Minimum,  // an f16 scale and an f16 minimum
  kPowerOfTwo,  // a byte b for 2^(b - 128); 255 is invalid
};

/// Groups per scale block.
constexpr int groups_of_block(GroupScale scale) {
  return scale == GroupScale::kF16 ? 2 : scale == GroupScale::kF16Minimum ? 1 : 4;
}

/// Decodes a power of two.
MOE_INLINE float power_of_two(uint8_t byte) {
  return bits_to_f32(byte < 2 ? uint32_t{0x200000} << byte : (uint32_t{byte} - 1) << 23);
}

/// Locates groups in a tile, with kBits bits per code, and their scales.
template <GroupScale kScale, int kBits>
struct GroupsInTile {
  static constexpr GroupScale kScales = kScale;
  static constexpr bool kMinimums = kScale == GroupScale::kF16Minimum;
  static constexpr int kGroups = groups_of_block(kScale);
  static constexpr int kGroupBytes = kTileGroup * kBits / 8 * kTileRows;
  static constexpr int64_t kSegmentBytes = kBlockBytes + int64_t{kGroups} * kGroupBytes;

  /// Offset of a group's codes in a tile, and of its scale block.
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
