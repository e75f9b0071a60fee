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

/// This is the only definition of a segment's bits. Rows reads elements of its fields, for one row
/// or for several at once, as values with the operators of integers.
template <Codebook kKind, class Rows>
struct CodebookBits {
  using Value = typename Rows::Value;

  /// Inputs of an entry of the codebook: half a lane in the formats of three bits.
  static constexpr int kEntryInputs =
      kKind == Codebook::kIq3Xxs || kKind == Codebook::kIq3S ? kLaneInputs / 2 : kLaneInputs;
  static constexpr int kEntries = kLaneInputs / kEntryInputs;

  /// The number of an entry of the codebook: that of the e-th part of eight inputs, l = 0 .. 3 of
  /// the 32 from 32 g on.
  MOE_INLINE Value index(const Rows& s, int g, int l, int e) {
    const int i = 4 * g + l;
    if constexpr (kKind == Codebook::kIq2Xxs) return Rows::word(s, 2, 2 * g) >> 8 * l & 255;
    if constexpr (kKind == Codebook::kIq2Xs) return Rows::half_word(s, 2, i) & 511;
    if constexpr (kKind == Codebook::kIq2S) {
      return Rows::byte(s, 2, i) | (Rows::byte(s, 66, g) << (8 - 2 * l) & 0x300);
    }
    if constexpr (kKind == Codebook::kIq3Xxs) return Rows::byte(s, 2, 2 * i + e);
    if constexpr (kKind == Codebook::kIq3S) {
      return Rows::byte(s, 2, 2 * i + e) | (Rows::byte(s, 66, g) << (8 - 2 * l - e) & 0x100);
    }
    if constexpr (kKind == Codebook::kIq1S) {
      return Rows::byte(s, 2, i) | (Rows::half_word(s, 34, g) << 8 >> 3 * l & 0x700);
    }
    return Rows::byte(s, 0, i) | (Rows::byte(s, 32, 2 * g + l / 2) << (8 - l % 2 * 4) & 0x700);
  }

  /// The fourth bits of the codes of these inputs, as a lane.
  MOE_INLINE Value fourth_bits(const Rows& s, int g, int l) {
    const int i = 4 * g + l;
    if constexpr (kKind == Codebook::kIq2Xxs) {
      return lane_of_even_signs(Rows::word(s, 2, 2 * g + 1) >> 7 * l & 127);
    }
    if constexpr (kKind == Codebook::kIq2Xs) {
      return lane_of_even_signs(Rows::half_word(s, 2, i) >> 9);
    }
    if constexpr (kKind == Codebook::kIq2S) return lane_of_signs(Rows::byte(s, 34, i));
    if constexpr (kKind == Codebook::kIq3Xxs) {
      return lane_of_even_signs(Rows::word(s, 66, g) >> 7 * l & 127);
    }
    if constexpr (kKind == Codebook::kIq3S) return lane_of_signs(Rows::byte(s, 74, i));
    if constexpr (kKind == Codebook::kIq1S) return lane_of_shift(Rows::half_word(s, 34, g) >> 15);
    return lane_of_shift(Rows::byte(s, 32, 2 * g + l / 2) >> (l % 2 * 4 + 3) & 1);
  }

  /// s of the scale of inputs [16 g, 16 g + 16).
  MOE_INLINE Value factor_bits(const Rows& s, int g) {
    if constexpr (kKind == Codebook::kIq2Xxs) return Rows::word(s, 2, g / 2 * 2 + 1) >> 28;
    if constexpr (kKind == Codebook::kIq2Xs) return Rows::byte(s, 66, g / 2) >> g % 2 * 4 & 15;
    if constexpr (kKind == Codebook::kIq2S) return Rows::byte(s, 74, g / 2) >> g % 2 * 4 & 15;
    if constexpr (kKind == Codebook::kIq3Xxs) return Rows::word(s, 66, g / 2) >> 28;
    if constexpr (kKind == Codebook::kIq3S) return Rows::byte(s, 106, g / 4) >> g / 2 % 2 * 4 & 15;
    if constexpr (kKind == Codebook::kIq1S) return Rows::half_word(s, 34, g / 2) >> 12 & 7;
    return Rows::half_word(s, 48, g / 4) >> g % 4 * 3 & 7;
  }

  /// The f16 of all inputs, as bits.
  MOE_INLINE Value half(const Rows& s) {
    if constexpr (kKind != Codebook::kIq1M) return Rows::half_word(s, 0, 0);
    return Rows::half_word(s, 48, 0) >> 12 | (Rows::half_word(s, 48, 1) >> 8 & 0xF0) |
           (Rows::half_word(s, 48, 2) >> 4 & 0xF00) | (Rows::half_word(s, 48, 3) & 0xF000);
  }
};

/// Element i of the field at byte `at` of a row's block, in a segment that has those of kRows rows.
template <int kRows>
struct CodebookRow {
  using Value = uint32_t;

  const uint8_t* segment;
  int row;

  MOE_INLINE uint32_t byte(const CodebookRow& of, int at, int i) {
    return of.segment[kRows * (at + i) + of.row];
  }
  MOE_INLINE uint32_t half_word(const CodebookRow& of, int at, int i) {
    uint16_t v;
    __builtin_memcpy(&v, of.segment + kRows * (at + 2 * i) + 2 * of.row, sizeof v);
    return v;
  }
  MOE_INLINE uint32_t word(const CodebookRow& of, int at, int i) {
    uint32_t v;
    __builtin_memcpy(&v, of.segment + kRows * (at + 4 * i) + 4 * of.row, sizeof v);
    return v;
  }
};

/// Reads a segment that has the blocks of kRows rows: with 16 that of a tile, with 1 a block of a
/// file.
template <Codebook kKind, int kRows = kTileRows>
struct CodebookSegment {
  using Row = CodebookRow<kRows>;
  using Bits = CodebookBits<kKind, Row>;

  /// The codes of eight inputs, l = 0 .. 3 of the 32 from 32 g on, as a lane.
  MOE_INLINE uint32_t lane(const uint8_t* s, int row, int g, int l) {
    const Row of = {s, row};
    uint32_t codes = entry(Bits::index(of, g, l, 0));
    if constexpr (Bits::kEntries == 2) codes |= entry(Bits::index(of, g, l, 1)) << 4;
    return codes | Bits::fourth_bits(of, g, l);
  }
  /// 2 s + 1 for inputs [16 g, 16 g + 16).
  MOE_INLINE int factor(const uint8_t* s, int row, int g) {
    return static_cast<int>(2 * Bits::factor_bits(Row{s, row}, g) + 1);
  }
  /// The f16 of all inputs, as bits.
  MOE_INLINE uint16_t half(const uint8_t* s, int row) {
    return static_cast<uint16_t>(Bits::half(Row{s, row}));
  }

 private:
  MOE_INLINE uint32_t entry(uint32_t index) {
    if constexpr (kKind == Codebook::kIq2Xxs) return iq2_xxs_lane(index);
    if constexpr (kKind == Codebook::kIq2Xs) return iq2_xs_lane(index);
    if constexpr (kKind == Codebook::kIq2S) return iq2_s_lane(index);
    if constexpr (kKind == Codebook::kIq3Xxs) return iq3_xxs_lane(index);
    if constexpr (kKind == Codebook::kIq3S) return iq3_s_lane(index);
    return iq1_lane(index);
  }
};

/// The entries of a codebook, lanes or their lower halves, in memory of the host. One object file
/// has them: not each of kernels/cpu/isa.
const uint32_t* codebook_lanes(Codebook kind);

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

/// Calls f.operator()<kKind>() for a codebook format.
template <class F>
MOE_INLINE void with_codebook(FormatId format, const F& f) {
  switch (format) {
    case FormatId::kIq2Xxs:
      return f.template operator()<Codebook::kIq2Xxs>();
    case FormatId::kIq2Xs:
      return f.template operator()<Codebook::kIq2Xs>();
    case FormatId::kIq2S:
      return f.template operator()<Codebook::kIq2S>();
    case FormatId::kIq3Xxs:
      return f.template operator()<Codebook::kIq3Xxs>();
    case FormatId::kIq3S:
      return f.template operator()<Codebook::kIq3S>();
    case FormatId::kIq1S:
      return f.template operator()<Codebook::kIq1S>();
    case FormatId::kIq1M:
      return f.template operator()<Codebook::kIq1M>();
    default:
      return;
  }
}

}  // namespace moe
