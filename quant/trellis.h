// SPDX-License-Identifier: MIT
#pragma once
// tcq2 and tcq3: trellis-coded quantisation (Marcellin and Fischer 1990) to eight levels in two
// bits and sixteen in three. 32 inputs of a row share a factor of four bits of an f16 that 256
// share.

#include "quant/trellis_layout.h"
#include "quant/weight_format.h"

namespace moe {

/// One format of the family: the bits of a weight, and the values of levels 0..7 and 8..15.
struct TrellisKind {
  int bits;
  uint64_t low;
  uint64_t high;

  constexpr int n_levels() const { return 2 << bits; }
  constexpr int value(int level) const {
    return static_cast<int8_t>((level < 8 ? low : high) >> (level % 8 * 8) & 255);
  }
};

size_t trellis_tile_bytes(const TrellisKind& kind, int64_t cols);
/// Sets scales to 1, those of padding rows to 0. Codes that are on no path become the nearest ones
/// that are.
void trellis_pack_codes(const TrellisKind& kind, const int8_t* codes, int64_t ld, int n_rows,
                        int32_t cols, uint8_t* tile);
void trellis_pack_scales(const TrellisKind& kind, const float* scales, int n_rows, int32_t cols,
                         uint8_t* tile);
Status trellis_quantise(const TrellisKind& kind, const float* w, int64_t ld, int n_rows,
                        int32_t cols, const float* importance, uint8_t* tile);
void trellis_round_rows(const TrellisKind& kind, const float* wanted, const float* scales,
                        int n_rows, int8_t* codes);
int64_t trellis_find_invalid(const TrellisKind& kind, const uint8_t* tile, size_t bytes);
void trellis_random_tile(const TrellisKind& kind, Random& random, size_t bytes, float amplitude,
                         uint8_t* tile);

template <class Layout>
struct Trellis : Layout {
  static constexpr TrellisKind kKind = {Layout::kBitsOfWeight, Layout::kLowValues,
                                        Layout::kHighValues};

  /// Its entry in the format table.
  static constexpr WeightFormat described(const char* name) {
    WeightFormat f = {};
    f.name = name;
    f.integer = true;
    f.max_code = kKind.value(kKind.n_levels() - 1);
    f.group = kTileGroup;
    f.scale_inputs = Unsigned4Scales::kShared * kTileGroup;
    f.scales = scale_bit(ScaleKind::kGroup);
    f.act = ActPrecision::kA8Group;
    f.segment_blocks = Layout::kSegmentBytes / kBlockBytes;
    f.tile_bytes = [](int64_t cols) { return trellis_tile_bytes(kKind, cols); };
    f.pack_codes = [](const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
      trellis_pack_codes(kKind, codes, ld, n_rows, cols, tile);
    };
    f.pack_scales = [](const float* scales, const float*, int n_rows, int32_t cols, uint8_t* tile) {
      trellis_pack_scales(kKind, scales, n_rows, cols, tile);
    };
    f.quantise_tile = [](const float* w, int64_t ld, int n_rows, int32_t cols,
                         const float* importance, uint8_t* tile) {
      return trellis_quantise(kKind, w, ld, n_rows, cols, importance, tile);
    };
    f.round_rows = [](const float* wanted, const float* scales, int n_rows, int8_t* codes) {
      trellis_round_rows(kKind, wanted, scales, n_rows, codes);
    };
    f.find_invalid = [](const uint8_t* tile, size_t bytes) {
      return trellis_find_invalid(kKind, tile, bytes);
    };
    f.random_code = [](uint8_t byte) {
      return static_cast<int8_t>(kKind.value(byte % kKind.n_levels()));
    };
    f.random_tile = [](Random& random, size_t bytes, float amplitude, uint8_t* tile) {
      trellis_random_tile(kKind, random, bytes, amplitude, tile);
    };
    f.random_cols = Layout::kGroups * kTileGroup;
    return f;
  }
};

struct Tcq2Format : Trellis<Tcq2Layout> {
  static constexpr WeightFormat info = described("tcq2");
};
struct Tcq3Format : Trellis<Tcq3Layout> {
  static constexpr WeightFormat info = described("tcq3");
};

}  // namespace moe
