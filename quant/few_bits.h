// SPDX-License-Identifier: MIT
#pragma once
// int2_k and int3_k: codes of two bits, 0..3, and of three, -4..3. 16 inputs of a row share a small
// factor of an f16 that 256 inputs share, those of int2_k also a minimum of that form.

#include "quant/few_bits_layout.h"
#include "quant/weight_format.h"

namespace moe {

template <class Layout>
struct FewBits : Layout {
  static size_t tile_bytes(int64_t cols);
  static void read_row(const uint8_t* tile, int32_t cols, int row, float* out);
  /// Sets scales to 1 and minimums to 0. A code above the largest becomes that.
  static void pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile);
  static void pack_scales(const float* scales, const float* minimums, int n_rows, int32_t cols,
                          uint8_t* tile);
  static Status quantise(const float* w, int64_t ld, int n_rows, int32_t cols,
                         const float* importance, uint8_t* tile);
  static int64_t find_invalid(const uint8_t* tile, size_t bytes);
  static int8_t random_code(uint8_t byte) {
    return static_cast<int8_t>(byte % (Layout::kThird ? 8 : 4) - Layout::kOffset);
  }
  static void random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile);

  /// Its entry in the format table.
  static constexpr WeightFormat described(const char* name, int max_code) {
    WeightFormat f = {};
    f.name = name;
    f.integer = true;
    f.max_code = max_code;
    f.group = Layout::kGroupInputs;
    f.minimums = Layout::kMinimums;
    f.scale_inputs = Layout::kGroups * Layout::kGroupInputs;
    f.scales = scale_bit(ScaleKind::kGroup);
    f.act = ActPrecision::kA8Group;
    f.segment_blocks = Layout::kSegmentBytes / kBlockBytes;
    f.tile_bytes = tile_bytes;
    f.read_row = read_row;
    f.pack_codes = pack;
    f.pack_scales = pack_scales;
    f.quantise_tile = quantise;
    f.find_invalid = find_invalid;
    f.random_code = random_code;
    f.random_tile = random_tile;
    f.random_cols = Layout::kGroups * Layout::kGroupInputs;
    return f;
  }
};

struct Int2KFormat : FewBits<Int2KLayout> {
  static constexpr WeightFormat info = described("int2_k", 3);
};
struct Int3KFormat : FewBits<Int3KLayout> {
  static constexpr WeightFormat info = described("int3_k", 4);
};

}  // namespace moe
