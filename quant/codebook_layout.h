// SPDX-License-Identifier: MIT
#pragma once
// Layout of the codebook formats, iq2_xxs to iq1_m (quant/README.md): GGUF's blocks of 256 inputs,
// in which every element of a field is stored for the rows of a tile, one after the other. Plain C
// headers only: the files of kernels/cpu/isa include this.

#include "quant/codebook_tables.h"
#include "quant/four_bit_layout.h"
#include "quant/half.h"

namespace moe {

enum class Codebook : uint8_t { kIq2Xxs, kIq2Xs, kIq2S, kIq3Xxs, kIq3S, kIq1S, kIq1M };

/// Inputs of a block, and of a segment of a tile.
inline constexpr int kCodebookInputs = 256;
/// Inputs whose codes are a lane (quant/codebook_tables.h).
inline constexpr int kLaneInputs = 8;

/// `n` elements of `bytes` bytes, from byte `at` of a block on.
struct BlockField {
  int at = 0;
  int bytes = 0;
  int n = 0;
};

/// The fields of a block, and the values of its codes.
struct CodebookKind {
  int block_bytes = 0;
  int group = 0;              // inputs that share a scale
  float unit = 0;             // scale = f16 * (2 s + 1) * unit, for a factor s of the group
  uint64_t low = 0;           // values of codes 0 .. 7
  uint64_t high = 0;          // and 8 .. 15
  BlockField fields[5] = {};  // all of them
};

/// The values of codes 8 .. 15 are those of 0 .. 7 negated.
constexpr CodebookKind signed_kind(int block_bytes, int group, float unit, const int (&values)[8],
                                   const BlockField (&fields)[5]) {
  int negative[8] = {};
  for (int i = 0; i < 8; ++i) negative[i] = -values[i];
  CodebookKind kind = {block_bytes, group, unit, table_word(values), table_word(negative), {}};
  for (int i = 0; i < 5; ++i) kind.fields[i] = fields[i];
  return kind;
}

/// Codes are a ternary weight plus 1, with a fourth bit for a shift of -1/8 instead of 1/8; values
/// are eighths.
constexpr CodebookKind ternary_kind(int block_bytes, int group, const BlockField (&fields)[5]) {
  CodebookKind kind = {block_bytes,
                       group,
                       0.125f,
                       table_word({-7, 1, 9, 0, 0, 0, 0, 0}),
                       table_word({-9, -1, 7, 0, 0, 0, 0, 0}),
                       {}};
  for (int i = 0; i < 5; ++i) kind.fields[i] = fields[i];
  return kind;
}

constexpr CodebookKind codebook_kind(Codebook kind) {
  constexpr int kTwoBits[8] = {8, 25, 43, 0, 0, 0, 0, 0};
  switch (kind) {
    case Codebook::kIq2Xxs:  // f16; per 32 inputs four indices, then four times seven signs and s
      return signed_kind(66, 32, 0.125f, kTwoBits, {{0, 2, 1}, {2, 4, 16}});
    case Codebook::kIq2Xs:  // f16; indices of nine bits with seven signs; s
      return signed_kind(74, 16, 0.125f, kTwoBits, {{0, 2, 1}, {2, 2, 32}, {66, 1, 8}});
    case Codebook::kIq2S:  // f16; lower bits of indices; signs; upper two bits; s
      return signed_kind(82, 16, 0.125f, kTwoBits,
                         {{0, 2, 1}, {2, 1, 32}, {34, 1, 32}, {66, 1, 8}, {74, 1, 8}});
    case Codebook::kIq3Xxs:  // f16; indices; per 32 inputs four times seven signs and s
      return signed_kind(98, 32, 0.25f, {4, 12, 20, 28, 36, 44, 52, 62},
                         {{0, 2, 1}, {2, 1, 64}, {66, 4, 8}});
    case Codebook::kIq3S:  // f16; lower bits of indices; ninth bits; signs; s
      return signed_kind(110, 32, 1, {1, 3, 5, 7, 9, 11, 13, 15},
                         {{0, 2, 1}, {2, 1, 64}, {66, 1, 8}, {74, 1, 32}, {106, 1, 4}});
    case Codebook::kIq1S:  // f16; lower bits of indices; per 32 inputs upper ones, s and the shift
      return ternary_kind(50, 32, {{0, 2, 1}, {2, 1, 32}, {34, 2, 8}});
    case Codebook::kIq1M:  // lower bits of indices; upper ones and shifts; s and parts of the f16
      return ternary_kind(56, 16, {{0, 1, 32}, {32, 1, 16}, {48, 2, 4}});
  }
  return {};
}

/// Reads a segment that has the blocks of kRows rows: with 16 that of a tile, with 1 a block of a
/// file. The only definition of what its bits mean.
template <Codebook kKind, int kRows = kTileRows>
struct CodebookSegment {
  /// The codes of eight inputs, l = 0 .. 3 of the 32 from 32 g on, as a lane.
  MOE_INLINE uint32_t lane(const uint8_t* s, int row, int g, int l) {
    const int i = 4 * g + l;
    if constexpr (kKind == Codebook::kIq2Xxs) {
      const uint32_t index = word(s, 2, 2 * g, row) >> 8 * l & 255;
      return iq2_xxs_lane(index) | even_signs_lane(word(s, 2, 2 * g + 1, row) >> 7 * l & 127);
    }
    if constexpr (kKind == Codebook::kIq2Xs) {
      const uint32_t code = half_word(s, 2, i, row);
      return iq2_xs_lane(code & 511) | even_signs_lane(code >> 9);
    }
    if constexpr (kKind == Codebook::kIq2S) {
      const uint32_t upper = byte(s, 66, g, row) >> 2 * l & 3;
      return iq2_s_lane(byte(s, 2, i, row) | upper << 8) | signs_lane(byte(s, 34, i, row));
    }
    if constexpr (kKind == Codebook::kIq3Xxs) {
      return iq3_xxs_lane(byte(s, 2, 2 * i, row)) | iq3_xxs_lane(byte(s, 2, 2 * i + 1, row)) << 4 |
             even_signs_lane(word(s, 66, g, row) >> 7 * l & 127);
    }
    if constexpr (kKind == Codebook::kIq3S) {
      const uint32_t ninth = byte(s, 66, g, row) >> 2 * l;
      return iq3_s_lane(byte(s, 2, 2 * i, row) | (ninth & 1) << 8) |
             iq3_s_lane(byte(s, 2, 2 * i + 1, row) | (ninth & 2) << 7) << 4 |
             signs_lane(byte(s, 74, i, row));
    }
    if constexpr (kKind == Codebook::kIq1S) {
      const uint32_t upper = half_word(s, 34, g, row);
      return iq1_lane(byte(s, 2, i, row) | (upper >> 3 * l & 7) << 8) | shift(upper >> 15);
    }
    const uint32_t upper = byte(s, 32, 2 * g + l / 2, row) >> l % 2 * 4;
    return iq1_lane(byte(s, 0, i, row) | (upper & 7) << 8) | shift(upper >> 3 & 1);
  }

  /// 2 s + 1 for inputs [16 g, 16 g + 16).
  MOE_INLINE int factor(const uint8_t* s, int row, int g) {
    return static_cast<int>(2 * factor_bits(s, row, g) + 1);
  }

  /// The f16 of all inputs, as bits.
  MOE_INLINE uint16_t half(const uint8_t* s, int row) {
    if constexpr (kKind != Codebook::kIq1M) {
      return static_cast<uint16_t>(half_word(s, 0, 0, row));
    }
    return static_cast<uint16_t>(
        half_word(s, 48, 0, row) >> 12 | (half_word(s, 48, 1, row) >> 8 & 0xF0u) |
        (half_word(s, 48, 2, row) >> 4 & 0xF00u) | (half_word(s, 48, 3, row) & 0xF000u));
  }

 private:
  // Element i of the field at byte `at` of a block.
  MOE_INLINE uint32_t byte(const uint8_t* s, int at, int i, int row) {
    return s[kRows * (at + i) + row];
  }
  MOE_INLINE uint32_t half_word(const uint8_t* s, int at, int i, int row) {
    uint16_t v;
    __builtin_memcpy(&v, s + kRows * (at + 2 * i) + 2 * row, sizeof v);
    return v;
  }
  MOE_INLINE uint32_t word(const uint8_t* s, int at, int i, int row) {
    uint32_t v;
    __builtin_memcpy(&v, s + kRows * (at + 4 * i) + 4 * row, sizeof v);
    return v;
  }
  MOE_INLINE uint32_t shift(uint32_t negative) { return negative * 0x88888888u; }

  MOE_INLINE uint32_t factor_bits(const uint8_t* s, int row, int g) {
    switch (kKind) {
      case Codebook::kIq2Xxs:
        return word(s, 2, g / 2 * 2 + 1, row) >> 28;
      case Codebook::kIq2Xs:
        return byte(s, 66, g / 2, row) >> g % 2 * 4 & 15;
      case Codebook::kIq2S:
        return byte(s, 74, g / 2, row) >> g % 2 * 4 & 15;
      case Codebook::kIq3Xxs:
        return word(s, 66, g / 2, row) >> 28;
      case Codebook::kIq3S:
        return byte(s, 106, g / 4, row) >> g / 2 % 2 * 4 & 15;
      case Codebook::kIq1S:
        return half_word(s, 34, g / 2, row) >> 12 & 7;
      case Codebook::kIq1M:
        return half_word(s, 48, g / 4, row) >> g % 4 * 3 & 7;
    }
    return 0;
  }
};

/// The code of input j of the eight of a lane.
MOE_INLINE int code_in_lane(uint32_t lane, int j) {
  return static_cast<int>(lane >> lane_shift(j) & 15);
}

template <Codebook kKind>
struct CodebookLayout {
  static constexpr Codebook kCodebook = kKind;
  static constexpr CodebookKind kInfo = codebook_kind(kKind);
  static constexpr bool kMinimums = false;
  static constexpr int kGroupInputs = kInfo.group;
  static constexpr int kSegmentBytes = kInfo.block_bytes * kTileRows;
  static constexpr uint64_t kLowValues = kInfo.low;
  static constexpr uint64_t kHighValues = kInfo.high;
  static constexpr float kUnit = kInfo.unit;
  using Segment = CodebookSegment<kKind>;

  MOE_INLINE const uint8_t* segment_of(const uint8_t* tile, int32_t col) {
    return tile + int64_t{col / kCodebookInputs} * kSegmentBytes;
  }
  MOE_INLINE constexpr int8_t value(int code) {
    return static_cast<int8_t>((code < 8 ? kLowValues : kHighValues) >> (code % 8 * 8) & 255);
  }

  MOE_INLINE float element(const uint8_t* tile, int32_t, int row, int32_t col) {
    const int in_segment = col % kCodebookInputs;
    const uint32_t lane = Segment::lane(segment_of(tile, col), row, in_segment / kTileGroup,
                                        in_segment % kTileGroup / kLaneInputs);
    return value(code_in_lane(lane, in_segment % kLaneInputs));
  }
  MOE_INLINE float scale(const uint8_t* tile, int row, int32_t group) {
    const uint8_t* s = segment_of(tile, group * kGroupInputs);
    const int factor = Segment::factor(s, row, group * kGroupInputs % kCodebookInputs / 16);
    return f16_to_f32(Segment::half(s, row)) * (static_cast<float>(factor) * kUnit);
  }
  MOE_INLINE float minimum(const uint8_t*, int, int32_t) { return 0.0f; }
};

}  // namespace moe
