// SPDX-License-Identifier: MIT
// int8_group: its layout, values stored without loss, and the quantiser's error.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/half.h"
#include "tests/support/stored_weights.h"

namespace moe {
namespace {

const WeightFormat& group_format() { return format_info(FormatId::kInt8Group); }

std::vector<float> stored(const std::vector<float>& w, int32_t cols,
                          const float* importance = nullptr) {
  return stored(group_format(), w, cols, importance);
}

TEST(Int8Group, LayoutIsFixed) {
  const WeightFormat& f = group_format();
  EXPECT_EQ(f.tile_bytes(2048), 16u * 2048 * 17 / 16);  // 8.5 bits
  EXPECT_EQ(f.tile_bytes(1), 64u + 512);
  EXPECT_EQ(f.tile_bytes(65), 2 * 64u + 3 * 512);

  std::vector<int8_t> codes(16 * 128, 0);
  codes[5 * 128 + 109] = -3;
  std::vector<float> scales(16 * 4, 1.0f);
  scales[5 * 4 + 3] = 0.5f;
  std::vector<uint8_t> tile(f.tile_bytes(128));
  f.pack_codes(codes.data(), 128, 16, 128, tile.data());
  f.pack_scales(scales.data(), nullptr, 16, 128, tile.data());
  // Group 3 is the second of the second segment; 109 is its input 13: block 3, byte 1 of the lane.
  EXPECT_EQ(tile[1088 + 64 + 512 + 3 * 64 + 5 * 4 + 1], 0xFD);
  EXPECT_EQ(tile[1088 + 32 + 5 * 2 + 1], 0x38);  // 0.5 as f16 is 0x3800
  EXPECT_EQ(f.element(tile.data(), 128, 5, 109), -3.0f);
  EXPECT_EQ(f.scale(tile.data(), 5, 3), 0.5f);
  EXPECT_EQ(f.minimum(tile.data(), 5, 3), 0.0f);
}

// Scales that are not finite and codes of -128 are found, and no other byte is reported.
TEST(Int8Group, BadScalesAndCodesAreFound) {
  expect_invalid_found(group_format(), {0x7C00, 0xFC00, 0x7E01, 0x1180, 0x8011, 0x117F},
                       [](size_t at, uint16_t bits) {
                         const bool code = (bits & 0xFF) == 0x80 || bits >> 8 == 0x80;
                         return at % 1088 < 64 ? !is_finite_half(bits) : code;
                       });
}

// The message says what was found; the reader of the file adds the name of the tensor.
TEST(Int8Group, BadScalesAndCodesAreTwoFaults) {
  std::vector<uint8_t> tile(group_format().tile_bytes(128), 0x11);
  Matrix m;
  m.format = FormatId::kInt8Group;
  m.scale_kind = ScaleKind::kGroup;
  m.group = 32;
  m.rows = 16;
  m.cols = 128;
  m.tile_stride = static_cast<int64_t>(tile.size());
  m.tiles = tile.data();
  const auto expect = [&](size_t at, uint8_t byte, moe_status code, const char* text) {
    tile[at] = byte;
    const Status status = validate_codes(m);
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_STREQ(status.text(), text);
    tile[at] = 0x11;
  };
  EXPECT_TRUE(validate_codes(m).ok());
  expect(1088 + 64 + 7, 0x80, MOE_ERR_RANGE,
         "int8_group weights: found -128 among codes of -127..127 in rows 0..15, block 18 of 34");
  expect(1088 + 7, 0x7C, MOE_ERR_NON_FINITE,
         "int8_group weights: found a scale that is NaN or infinite in rows 0..15, block 17 of 34");
}

// Codes with float16 scales, as in Q8_0 and Q5_0, are kept whatever their largest value is.
TEST(Int8Group, CodesWithHalvesAsScalesAreKept) {
  std::mt19937 rng(3);
  for (int largest = 1; largest <= 127; ++largest) {
    for (const int32_t cols : {32, 100}) {
      std::vector<float> w(static_cast<size_t>(16 * cols));
      for (size_t i = 0; i < w.size(); i += 4) {
        const size_t in_row = i % static_cast<size_t>(cols);
        const float scale = f16_to_f32(static_cast<uint16_t>(
            0x2000 + 37 * (i / static_cast<size_t>(cols)) + 611 * (in_row / 32)));
        for (size_t j = 0; j < 4; ++j) {
          const int code = static_cast<int>(rng() % static_cast<unsigned>(2 * largest + 1));
          w[i + j] = static_cast<float>(in_row % 32 + j == 1 ? -largest : code - largest) * scale;
        }
      }
      ASSERT_EQ(stored(w, cols), w) << largest << " " << cols;
    }
  }
}

// So are codes with a subnormal scale.
TEST(Int8Group, CodesWithTinyScalesAreKept) {
  std::mt19937 rng(8);
  for (uint16_t bits = 1; bits < 0x400; bits += 3) {
    const float scale = f16_to_f32(bits);
    const int largest = 1 + static_cast<int>(rng() % 127);
    std::vector<float> w(32);
    for (float& v : w) {
      v = scale * static_cast<float>(
                      static_cast<int>(rng() % static_cast<unsigned>(2 * largest + 1)) - largest);
    }
    w[5] = scale * static_cast<float>(-largest);
    ASSERT_EQ(stored(w, 32), w) << bits << " " << largest;
  }
}

// Q6_K has a scale per 16 inputs and codes in -32..31: groups of 32 lose less than one scale per
// row.
TEST(Int8Group, HalvesOfGroupsAreNearlyKept) {
  std::mt19937 rng(4);
  std::vector<float> w(16 * 256);
  for (size_t i = 0; i < w.size(); i += 16) {
    const float scale = f16_to_f32(0x1400) * static_cast<float>(40 + rng() % 88);
    for (size_t j = 0; j < 16; ++j) {
      w[i + j] = scale * static_cast<float>(j == 0 ? -32 : static_cast<int>(rng() % 64) - 32);
    }
  }
  EXPECT_LT(relative_error(w, stored(w, 256)), 0.7 * relative_error(w, stored_by_row(w, 256)));
}

TEST(Int8Group, ErrorIsSmall) {
  std::vector<float> w = normals(16 * 1024, 5, 0.02f);
  EXPECT_LT(relative_error(w, stored(w, 1024)), 0.0055);
  for (size_t row = 0; row < 16; ++row)
    w[row * 1024 + row] = 1.0f;  // an outlier of 50 standard deviations
  EXPECT_LT(relative_error(w, stored(w, 1024)), 0.015);
  EXPECT_GT(relative_error(w, stored_by_row(w, 1024)), 0.05);
}

TEST(Int8Group, ImportanceDecides) {
  const std::vector<float> w = normals(16 * 256, 6, 0.02f);
  std::vector<float> importance(256);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 8 == 0 ? 100.0f : 1.0f;
  EXPECT_LT(relative_error(w, stored(w, 256, importance.data()), importance),
            0.99 * relative_error(w, stored(w, 256), importance));
  const std::vector<float> unseen(256, 0.0f);
  EXPECT_EQ(stored(w, 256, unseen.data()), stored(w, 256));
}

TEST(Int8Group, OddRows) {
  const WeightFormat& f = group_format();
  EXPECT_EQ(stored(std::vector<float>(70, 0.0f), 70), std::vector<float>(70, 0.0f));
  for (const float v : {1e-12f, 3e-8f, 1e-6f, 0x1.de1ffep-14f, -0x1.de1ffep-14f, -0.25f, 1000.0f,
                        -60000.0f, 8e6f}) {
    for (const float got : stored(std::vector<float>(70, v), 70)) {
      EXPECT_NEAR(got, v, std::fabs(v) * 0.004f + 3e-8f);
    }
  }
  std::vector<uint8_t> tile(f.tile_bytes(3));
  const float bad[2][3] = {{0, NAN, 0}, {0, 0, -INFINITY}};
  for (const auto& row : bad) {
    const Status status = f.quantise_tile(row, 3, 1, 3, nullptr, tile.data());
    EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
  }
  const float huge[1] = {1e30f};
  EXPECT_EQ(f.quantise_tile(huge, 1, 1, 1, nullptr, tile.data()).code(), MOE_ERR_RANGE);
}

}  // namespace
}  // namespace moe
