// SPDX-License-Identifier: MIT
#pragma once
// iq2_xxs to iq1_m: GGUF's types of these names, bit for bit. Indices select eight or four weights
// of a codebook; 16 or 32 inputs of a row share a small odd factor of an f16 that 256 inputs share.
// Weights are not quantised to them: they come from files that have them.

#include "quant/codebook_layout.h"
#include "quant/weight_format.h"

namespace moe {

size_t codebook_tile_bytes(const CodebookKind& kind, int64_t cols);
void codebook_pack_blocks(const CodebookKind& kind, const uint8_t* blocks, int64_t ld, int n_rows,
                          int32_t cols, uint8_t* tile);

template <Codebook kKind>
struct CodebookFormat : CodebookLayout<kKind> {
  using Layout = CodebookLayout<kKind>;

  static void read_row(const uint8_t* tile, int32_t cols, int row, float* out);
  /// Looks up each index once, and not for each of its weights.
  static void read_tile(const uint8_t* tile, int32_t begin, int32_t n, float* out);
  static int64_t find_invalid(const uint8_t* tile, size_t bytes);
  /// The 256 weights of a block of a file.
  static void read_block(const uint8_t* block, float* to);

  /// Its entry in the format table.
  static constexpr WeightFormat described(const char* name) {
    WeightFormat f = {};
    f.name = name;
    f.integer = true;
    for (int code = 0; code < 16; ++code) {
      f.max_code = f.max_code < Layout::value(code) ? Layout::value(code) : f.max_code;
    }
    f.group = Layout::kGroupInputs;
    f.scale_inputs = kCodebookInputs;
    f.scales = scale_bit(ScaleKind::kGroup);
    f.act = ActPrecision::kA8Group;
    f.tile_bytes = [](int64_t cols) { return codebook_tile_bytes(Layout::kInfo, cols); };
    f.read_row = read_row;
    f.read_tile = read_tile;
    f.pack_blocks = [](const uint8_t* blocks, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
      codebook_pack_blocks(Layout::kInfo, blocks, ld, n_rows, cols, tile);
    };
    f.find_invalid = find_invalid;
    return f;
  }
};

struct Iq2XxsFormat : CodebookFormat<Codebook::kIq2Xxs> {
  static constexpr WeightFormat info = described("iq2_xxs");
};
struct Iq2XsFormat : CodebookFormat<Codebook::kIq2Xs> {
  static constexpr WeightFormat info = described("iq2_xs");
};
struct Iq2SFormat : CodebookFormat<Codebook::kIq2S> {
  static constexpr WeightFormat info = described("iq2_s");
};
struct Iq3XxsFormat : CodebookFormat<Codebook::kIq3Xxs> {
  static constexpr WeightFormat info = described("iq3_xxs");
};
struct Iq3SFormat : CodebookFormat<Codebook::kIq3S> {
  static constexpr WeightFormat info = described("iq3_s");
};
struct Iq1SFormat : CodebookFormat<Codebook::kIq1S> {
  static constexpr WeightFormat info = described("iq1_s");
};
struct Iq1MFormat : CodebookFormat<Codebook::kIq1M> {
  static constexpr WeightFormat info = described("iq1_m");
};

}  // namespace moe
