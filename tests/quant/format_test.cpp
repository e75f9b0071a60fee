// SPDX-License-Identifier: MIT
// Every format of the list: packing, layout, padding, detection of invalid bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "quant/formats.h"
#include "quant/half.h"
#include "tests/support/weight_blocks.h"
#include "tests/support/weight_codes.h"

namespace moe {
namespace {

const int32_t kCols[] = {1,  3,   4,   5,   16,  17,  20,  21,  63,
                         64, 255, 256, 257, 260, 276, 511, 512, 1000};

// A packed tile of random rows, and the values that element() must return.
struct Tile {
  std::vector<uint8_t> bytes;
  std::vector<float> want;  // (n_rows, cols)
};

Tile random_tile(const WeightFormat& f, int n_rows, int32_t cols, std::mt19937& rng) {
  Tile t;
  t.bytes.assign(f.tile_bytes(cols), 0xEE);
  if (f.only_blocks()) {
    pack_random_blocks(f, n_rows, cols, 1.0f, rng, t.bytes.data());
    for (int r = 0; r < n_rows; ++r) {
      for (int32_t c = 0; c < cols; ++c) t.want.push_back(f.element(t.bytes.data(), cols, r, c));
    }
    return t;
  }
  const size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(cols);
  std::vector<int8_t> codes(n);
  std::vector<float> values(n);
  std::vector<int32_t> whole(n);
  for (size_t i = 0; i < n; ++i) {
    const int code = f.integer ? random_weight_code(f, rng) : static_cast<int>(rng() % 255u) - 127;
    codes[i] = static_cast<int8_t>(code);
    values[i] = static_cast<float>(code) / 8;  // exact in every float format
    whole[i] = code * 1000;
    t.want.push_back(f.integer ? static_cast<float>(code)
                     : f.table ? static_cast<float>(whole[i])
                               : values[i]);
  }
  if (f.integer) {
    f.pack_codes(codes.data(), cols, n_rows, cols, t.bytes.data());
    for (size_t i = 0; i < n && f.round_rows != nullptr; ++i) {  // the nearest codes on a path
      const auto at = static_cast<int32_t>(i);
      t.want[i] = f.element(t.bytes.data(), cols, at / cols, at % cols);
    }
  } else if (f.table) {
    i32_pack(whole.data(), cols, n_rows, cols, t.bytes.data());
  } else {
    f.pack_values(values.data(), cols, n_rows, cols, t.bytes.data());
  }
  return t;
}

TEST(WeightFormats, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const WeightFormat& f : kWeightFormats) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    ASSERT_NE(find_format(f.name), nullptr);
    EXPECT_EQ(find_format(f.name)->id, f.id);
    EXPECT_EQ(format_info(f.id).name, f.name);
  }
  EXPECT_EQ(find_format("ternary"), nullptr);
  EXPECT_EQ(find_format(""), nullptr);
}

TEST(WeightFormats, PackedElementsComeBack) {
  std::mt19937 rng(1);
  for (const WeightFormat& f : kWeightFormats) {
    for (const int32_t cols : kCols) {
      for (const int n_rows : {1, 7, 16}) {
        const Tile t = random_tile(f, n_rows, cols, rng);
        std::vector<float> row(static_cast<size_t>(cols));
        const bool zero_by_scales = f.only_blocks() || f.round_rows != nullptr;
        for (int r = 0; r < (zero_by_scales ? n_rows : kTileRows); ++r) {
          read_row(f, t.bytes.data(), cols, r, row.data());
          for (int32_t c = 0; c < cols; ++c) {
            const float want =
                r < n_rows ? t.want[static_cast<size_t>(r * cols + c)] : padding_code(f);
            ASSERT_EQ(f.element(t.bytes.data(), cols, r, c), want)
                << f.name << " cols " << cols << " row " << r << " col " << c;
            ASSERT_EQ(row[static_cast<size_t>(c)], want) << f.name;
          }
        }
      }
    }
  }
}

TEST(WeightFormats, PackersWriteWholeValidTiles) {
  std::mt19937 rng(2);
  for (const WeightFormat& f : kWeightFormats) {
    if (f.find_invalid == nullptr) continue;
    for (const int32_t cols : kCols) {
      const Tile t = random_tile(f, 9, cols, rng);  // begins as 0xEE, which is not valid ternary
      EXPECT_EQ(f.find_invalid(t.bytes.data(), t.bytes.size()), -1) << f.name << " cols " << cols;
    }
  }
}

TEST(WeightFormats, InvalidBytesAreFoundWhereverTheyAre) {
  std::mt19937 rng(3);
  for (const WeightFormat& f : kWeightFormats) {
    if (f.find_invalid == nullptr) continue;
    if (f.id > FormatId::kF16) continue;  // the other formats have their own tests
    Tile t = random_tile(f, 16, 300, rng);
    for (size_t at = 0; at < t.bytes.size(); ++at) {
      const std::vector<uint8_t> before = t.bytes;
      switch (f.id) {
        case FormatId::kTernary2:
          t.bytes[at] = static_cast<uint8_t>(t.bytes[at] | (3 << (2 * (rng() % 4))));
          break;
        case FormatId::kTernary3:
          t.bytes[at] = static_cast<uint8_t>(243 + rng() % 13);
          break;
        case FormatId::kInt8:
          t.bytes[at] = 0x80;
          break;
        default: {  // an infinity or a NaN in the element that holds the byte
          const size_t size = f.id == FormatId::kF32 ? 4 : 2;
          const uint32_t bits = f.id == FormatId::kF16    ? 0x7C00u
                                : f.id == FormatId::kBf16 ? 0xFF80u
                                                          : 0x7FC00001u;
          std::memcpy(&t.bytes[at / size * size], &bits, size);
        }
      }
      ASSERT_EQ(f.find_invalid(t.bytes.data(), t.bytes.size()), static_cast<int64_t>(at / 64))
          << f.name << " byte " << at;
      t.bytes = before;
    }
  }
}

TEST(WeightFormats, EveryValidByteIsAccepted) {
  std::vector<uint8_t> block(64, 0);
  for (int v = 0; v < 256; ++v) {
    for (size_t at : {size_t{0}, size_t{7}, size_t{63}}) {
      std::fill(block.begin(), block.end(), uint8_t{0});
      block[at] = static_cast<uint8_t>(v);
      bool two_bits = true;
      for (int f = 0; f < 4; ++f) two_bits = two_bits && ((v >> (2 * f)) & 3) != 3;
      EXPECT_EQ(ternary2_find_invalid(block.data(), 64) == -1, two_bits) << v;
      EXPECT_EQ(ternary3_find_invalid(block.data(), 64) == -1, v <= 242) << v;
      EXPECT_EQ(int8_find_invalid(block.data(), 64) == -1, v != 128) << v;
    }
  }
}

// The exact layouts, which other programs and devices depend on.
TEST(WeightFormats, LayoutIsFixed) {
  EXPECT_EQ(ternary2_tile_bytes(2048), 8192u);
  EXPECT_EQ(ternary2_tile_bytes(17), 128u);
  EXPECT_EQ(ternary3_tile_bytes(256), 13u * 64);
  EXPECT_EQ(ternary3_tile_bytes(2048), 8u * 13 * 64);
  EXPECT_EQ(ternary3_tile_bytes(256 + 21), 15u * 64);
  EXPECT_EQ(ternary3_tile_bytes(255), 13u * 64);
  EXPECT_EQ(int8_tile_bytes(5), 128u);
  EXPECT_EQ(four_byte_tile_bytes(3), 192u);
  EXPECT_EQ(two_byte_tile_bytes(3), 96u);

  std::vector<int8_t> codes(16 * 512, 0);
  std::vector<uint8_t> tile(16 * 512 * 4);
  codes[5 * 512 + 300] = 1;
  ternary2_pack(codes.data(), 512, 16, 512, tile.data());
  // Block 300 / 16 = 18, field (300 % 16) / 4 = 3, byte 300 % 4 = 0 of lane 5.
  EXPECT_EQ(tile[18 * 64 + 5 * 4 + 0], 0x55 + (1 << 6));
  ternary3_pack(codes.data(), 512, 16, 512, tile.data());
  // Second segment, input 44: block 13 + 44 / 20 = 15, digit (44 % 20) / 4 = 1, byte 0 of lane 5.
  EXPECT_EQ(tile[15 * 64 + 5 * 4 + 0], 121 + 3);
  int8_pack(codes.data(), 512, 16, 512, tile.data());
  EXPECT_EQ(tile[75 * 64 + 5 * 4 + 0], 1);

  std::vector<float> values(16 * 512, 0.0f);
  values[5 * 512 + 300] = 1.0f;
  bf16_pack(values.data(), 512, 16, 512, tile.data());
  EXPECT_EQ(tile[(300 * 16 + 5) * 2 + 1], 0x3F);
  f16_pack(values.data(), 512, 16, 512, tile.data());
  EXPECT_EQ(tile[(300 * 16 + 5) * 2 + 1], 0x3C);
  f32_pack(values.data(), 512, 16, 512, tile.data());
  EXPECT_EQ(tile[(300 * 16 + 5) * 4 + 3], 0x3F);
}

TEST(WeightFormats, HalfOverflowIsFound) {
  const float big[1] = {70000.0f};
  std::vector<uint8_t> tile(two_byte_tile_bytes(1));
  f16_pack(big, 1, 1, 1, tile.data());
  EXPECT_EQ(f16_find_invalid(tile.data(), tile.size()), 0);
}

}  // namespace
}  // namespace moe
