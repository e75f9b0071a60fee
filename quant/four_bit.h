// SPDX-License-Identifier: MIT
#pragma once
// The four-bit formats: a code selects one of 16 values, and 32 inputs of a row share a scale
// stored in the tile next to their codes: weight = scale * value + minimum. Layout:
// quant/README.md.

#include "quant/four_bit_layout.h"
#include "quant/weight_format.h"

namespace moe {

/// One format of the family: its scaling, and the values of codes 0..7 and 8..15.
struct FourBitKind {
  GroupScale scale;
  uint64_t low;
  uint64_t high;
};

size_t four_bit_tile_bytes(const FourBitKind& kind, int64_t cols);
void four_bit_read_row(const FourBitKind& kind, const uint8_t* tile, int32_t cols, int row,
                       float* out);
/// Each code is one of the values. Scales become 1 and minimums 0.
void four_bit_pack_codes(const FourBitKind& kind, const int8_t* codes, int64_t ld, int n_rows,
                         int32_t cols, uint8_t* tile);
void four_bit_pack_scales(const FourBitKind& kind, const float* scales, const float* minimums,
                          int n_rows, int32_t cols, uint8_t* tile);
Status four_bit_quantise(const FourBitKind& kind, const float* w, int64_t ld, int n_rows,
                         int32_t cols, const float* importance, uint8_t* tile);
int64_t four_bit_find_invalid(const FourBitKind& kind, const uint8_t* tile, size_t bytes);
int8_t four_bit_random_code(const FourBitKind& kind, uint8_t byte);
void four_bit_random_tile(const FourBitKind& kind, Random& random, size_t bytes, float amplitude,
                          uint8_t* tile);

template <class Layout>
struct FourBits : Layout {
  static constexpr FourBitKind kKind = {Layout::kScales, Layout::kLowValues, Layout::kHighValues};

  /// Its entry in the format table.
  static constexpr WeightFormat described(const char* name, int max_code) {
    WeightFormat f = {};
    f.name = name;
    f.integer = true;
    f.max_code = max_code;
    f.scales = scale_bit(ScaleKind::kGroup);
    f.group = kTileGroup;
    f.minimums = Layout::kMinimums;
    f.scale_inputs =
        Layout::kScales == GroupScale::kSixBits ? Layout::kGroups * kTileGroup : kTileGroup;
    f.act = ActPrecision::kA8Group;
    f.segment_blocks = Layout::kSegmentBytes / kBlockBytes;
    f.tile_bytes = [](int64_t cols) { return four_bit_tile_bytes(kKind, cols); };
    f.read_row = [](const uint8_t* tile, int32_t cols, int row, float* out) {
      four_bit_read_row(kKind, tile, cols, row, out);
    };
    f.pack_codes = [](const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
      four_bit_pack_codes(kKind, codes, ld, n_rows, cols, tile);
    };
    f.pack_scales = [](const float* scales, const float* minimums, int n_rows, int32_t cols,
                       uint8_t* tile) {
      four_bit_pack_scales(kKind, scales, minimums, n_rows, cols, tile);
    };
    f.quantise_tile = [](const float* w, int64_t ld, int n_rows, int32_t cols,
                         const float* importance, uint8_t* tile) {
      return four_bit_quantise(kKind, w, ld, n_rows, cols, importance, tile);
    };
    f.find_invalid = [](const uint8_t* tile, size_t bytes) {
      return four_bit_find_invalid(kKind, tile, bytes);
    };
    f.random_code = [](uint8_t byte) { return four_bit_random_code(kKind, byte); };
    f.random_tile = [](Random& random, size_t bytes, float amplitude, uint8_t* tile) {
      four_bit_random_tile(kKind, random, bytes, amplitude, tile);
    };
    f.random_cols = Layout::kGroups * kTileGroup;
    return f;
  }
};

struct Int4Format : FourBits<Int4Layout> {
  static constexpr WeightFormat info = described("int4", 8);
};
struct Int4MinFormat : FourBits<Int4MinLayout> {
  static constexpr WeightFormat info = described("int4_min", 15);
};
struct Int4KFormat : FourBits<Int4KLayout> {
  static constexpr WeightFormat info = described("int4_k", 15);
};
struct Fp4Format : FourBits<Fp4Layout> {
  static constexpr WeightFormat info = described("fp4", 12);
};
struct Nl4Format : FourBits<Nl4Layout> {
  static constexpr WeightFormat info = described("nl4", 127);
};
struct Nf4Format : FourBits<Nf4Layout> {
  static constexpr WeightFormat info = described("nf4", 124);
};

}  // namespace moe
