// SPDX-License-Identifier: MIT
// The codebook formats, iq2_xxs to iq1_m: their layouts, what kernels get of them, and bad scales.
// tests/convert/gguf_blocks_test.cpp compares their values with those of the gguf package.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/stored_weights.h"
#include "tests/support/weight_blocks.h"

namespace moe {
namespace {

constexpr FormatId kCodebooks[] = {FormatId::kIq2Xxs, FormatId::kIq2Xs, FormatId::kIq2S,
                                   FormatId::kIq3Xxs, FormatId::kIq3S,  FormatId::kIq1S,
                                   FormatId::kIq1M};

TEST(Codebooks, BytesAreThoseOfGguf) {
  constexpr size_t kBytes[] = {66, 74, 82, 98, 110, 50, 56};  // of a block of 256 weights
  for (size_t i = 0; i < std::size(kCodebooks); ++i) {
    const WeightFormat& f = format_info(kCodebooks[i]);
    EXPECT_EQ(f.tile_bytes(2048), 16 * 8 * kBytes[i]) << f.name;
    EXPECT_EQ(f.tile_bytes(1), 16 * kBytes[i]) << f.name;
    EXPECT_EQ(f.tile_bytes(257), 2 * 16 * kBytes[i]) << f.name;
  }
}

TEST(Codebooks, OnlyTheseComeAsBlocks) {
  for (const WeightFormat& f : kWeightFormats) {
    const bool codebook =
        std::find(std::begin(kCodebooks), std::end(kCodebooks), f.id) != std::end(kCodebooks);
    EXPECT_EQ(f.only_blocks(), codebook) << f.name;
    const bool listed = std::string(weight_format_names()).find(f.name) != std::string::npos;
    EXPECT_EQ(listed, !codebook && !f.table) << f.name;
  }
}

// Row 5, second segment.
TEST(Codebooks, LayoutIsFixed) {
  std::vector<uint8_t> blocks(16 * 2 * 110);
  std::vector<uint8_t> tile(blocks.size());
  const auto pack = [&](FormatId id, std::initializer_list<std::pair<int, uint8_t>> bytes) {
    const WeightFormat& f = format_info(id);
    const auto n = bytes_of_block(f);
    std::fill(blocks.begin(), blocks.end(), uint8_t{0});
    for (const auto& [at, byte] : bytes) blocks[11 * n + static_cast<size_t>(at)] = byte;
    f.pack_blocks(blocks.data(), static_cast<int64_t>(2 * n), 16, 512, tile.data());
    return tile.data() + 16 * n;  // the second segment
  };
  // Input 77 is the sixth of the tenth eight, the second of group 2.
  const uint8_t* s = pack(
      FormatId::kIq2Xxs, {{1, 0x48}, {2 + 4 * 4 + 1, 2}, {2 + 4 * 5, 0x80}, {2 + 4 * 5 + 3, 0x30}});
  EXPECT_EQ(s[2 * 5 + 1], 0x48);                    // 8 as f16
  EXPECT_EQ(s[16 * 2 + 64 * 4 + 4 * 5 + 1], 2);     // indices of a group, a lane of four bytes
  EXPECT_EQ(s[16 * 2 + 64 * 5 + 4 * 5 + 3], 0x30);  // its signs and, uppermost, its factor
  EXPECT_EQ(format_info(FormatId::kIq2Xxs).scale(tile.data(), 5, 8 + 2), 7.0f);
  // Entry 2 is 25 25 8 8 8 8 8 8: 0x0005. The signs of the second eight are 1, one of seven: the
  // first weight and the eighth are negative.
  for (int i = 0; i < 8; ++i) {
    const float expected[] = {-25, 25, 8, 8, 8, 8, 8, -8};
    EXPECT_EQ(format_info(FormatId::kIq2Xxs).element(tile.data(), 512, 5, 256 + 72 + i),
              expected[i])
        << i;
  }
  // The f16 of iq1_m is in the upper four bits of the last four words.
  s = pack(FormatId::kIq1M, {{49, 0x40}, {51, 0x30}, {53, 0x80}, {55, 0x45}, {54, 0x00}});
  EXPECT_EQ(s[16 * 48 + 32 * 3 + 2 * 5 + 1], 0x45);
  EXPECT_EQ(format_info(FormatId::kIq1M).scale(tile.data(), 5, 16), f16_to_f32(0x4834) * 0.125f);
}

TEST(Codebooks, PaddingIsZero) {
  std::mt19937 rng(1);
  for (const FormatId id : kCodebooks) {
    const WeightFormat& f = format_info(id);
    std::vector<uint8_t> tile(f.tile_bytes(300), 0xEE);
    pack_random_blocks(f, 7, 300, 1.0f, rng, tile.data());
    std::vector<float> row(300);
    for (int r = 7; r < kTileRows; ++r) {
      read_weights(f, tile.data(), 300, r, row.data());
      for (const float v : row) ASSERT_EQ(v, 0) << f.name;
    }
  }
}

TEST(Codebooks, TilesAreReadAsTheirElements) {
  std::mt19937 rng(2);
  for (const FormatId id : kCodebooks) {
    const WeightFormat& f = format_info(id);
    std::vector<uint8_t> tile(f.tile_bytes(512));
    pack_random_blocks(f, 16, 512, 1.0f, rng, tile.data());
    for (const int32_t begin : {0, 8, 37, 250, 452}) {
      float out[60][kTileRows];
      f.read_tile(tile.data(), begin, 60, out[0]);
      for (int32_t i = 0; i < 60; ++i) {
        for (int row = 0; row < kTileRows; ++row) {
          ASSERT_EQ(out[i][row], f.element(tile.data(), 512, row, begin + i)) << f.name;
        }
      }
    }
  }
}

TEST(Codebooks, BadScalesAreFound) {
  std::mt19937 rng(3);
  for (const FormatId id : kCodebooks) {
    const WeightFormat& f = format_info(id);
    std::vector<uint8_t> tile(f.tile_bytes(700));
    std::vector<uint8_t> blocks = random_blocks(f, 16, 700, 1.0f, rng);
    const size_t ld = bytes_of_blocks(f, 700);
    for (size_t at = 0; at < blocks.size(); at += bytes_of_block(f)) {
      for (const uint16_t half : {0x7C00, 0xFC00, 0x7E01}) {
        std::vector<uint8_t> bad = blocks;
        put_half_in_block(f, half, &bad[at]);
        f.pack_blocks(bad.data(), static_cast<int64_t>(ld), 16, 700, tile.data());
        const size_t segment = at % ld / bytes_of_block(f);
        ASSERT_EQ(f.find_invalid(tile.data(), tile.size()),
                  static_cast<int64_t>(segment * 16 * bytes_of_block(f) / 64))
            << f.name;
      }
    }
    Matrix m = {id, ScaleKind::kGroup, f.act, f.group, 16, 700, 0, tile.data(), nullptr};
    m.tile_stride = static_cast<int64_t>(tile.size());
    const Status status = validate_codes(m);
    EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE) << f.name;
    EXPECT_NE(std::string(status.text()).find("a scale that is NaN or infinite"), std::string::npos)
        << status.text();
  }
}

}  // namespace
}  // namespace moe
