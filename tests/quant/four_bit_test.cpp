// SPDX-License-Identifier: MIT
// The four-bit formats: their layout, values stored without loss, and the quantiser's error.
#include <gtest/gtest.h>

#include <cmath>

#include "quant/half.h"
#include "tests/support/stored_weights.h"
#include "tests/support/weight_codes.h"

namespace moe {
namespace {

const FormatId kFourBits[] = {FormatId::kInt4, FormatId::kInt4Min, FormatId::kInt4K,
                              FormatId::kFp4,  FormatId::kNl4,     FormatId::kNf4};

std::vector<float> weight_of_row(const WeightFormat& f, const uint8_t* tile, int32_t cols,
                                 int row) {
  std::vector<float> weights(static_cast<size_t>(cols));
  read_weights(f, tile, cols, row, weights.data());
  return weights;
}

TEST(FourBit, LayoutIsFixed) {
  const WeightFormat& int4 = format_info(FormatId::kInt4);
  EXPECT_EQ(int4.tile_bytes(2048), 16u * 2048 * 9 / 16);  // 4.5 bits
  EXPECT_EQ(format_info(FormatId::kNl4).tile_bytes(2048), 16u * 2048 * 9 / 16);
  EXPECT_EQ(format_info(FormatId::kInt4Min).tile_bytes(2048), 16u * 2048 * 5 / 8);
  EXPECT_EQ(format_info(FormatId::kFp4).tile_bytes(2048), 16u * 2048 * 17 / 32);
  EXPECT_EQ(format_info(FormatId::kInt4K).tile_bytes(2048), 16u * 2048 * 9 / 16);
  EXPECT_EQ(format_info(FormatId::kInt4K).tile_bytes(257), 2 * 256u + 9 * 256);
  EXPECT_EQ(int4.tile_bytes(1), 64u + 256);
  EXPECT_EQ(int4.tile_bytes(65), 2 * 64u + 3 * 256);

  std::vector<int8_t> codes(16 * 128, 0);
  codes[5 * 128 + 109] = -3;
  std::vector<float> scales(16 * 4, 1.0f);
  scales[5 * 4 + 3] = 0.5f;
  std::vector<uint8_t> tile(int4.tile_bytes(128));
  int4.pack_codes(codes.data(), 128, 16, 128, tile.data());
  int4.pack_scales(scales.data(), nullptr, 16, 128, tile.data());
  // Group 3 is the second of the second segment; 109 is its input 13: block 1, byte 1, upper half.
  EXPECT_EQ(tile[576 + 64 + 256 + 64 + 5 * 4 + 1], 0x58);
  EXPECT_EQ(tile[576 + 32 + 5 * 2 + 1], 0x38);  // 0.5 as f16 is 0x3800
  EXPECT_EQ(int4.element(tile.data(), 128, 5, 109), -3.0f);
  EXPECT_EQ(int4.scale(tile.data(), 5, 3), 0.5f);

  const WeightFormat& fp4 = format_info(FormatId::kFp4);
  tile.assign(fp4.tile_bytes(128), 0);
  codes.assign(codes.size(), 0);
  codes[5 * 128 + 109] = -12;
  fp4.pack_codes(codes.data(), 128, 16, 128, tile.data());
  fp4.pack_scales(scales.data(), nullptr, 16, 128, tile.data());
  EXPECT_EQ(tile[64 + 3 * 256 + 64 + 5 * 4 + 1], 0xF0);
  EXPECT_EQ(tile[3 * 16 + 5], 127);  // 2^-1
}

TEST(FourBit, LayoutOfSixBitScalesIsFixed) {
  const WeightFormat& f = format_info(FormatId::kInt4K);
  std::vector<int8_t> codes(16 * 512, 0);
  codes[5 * 512 + 256 + 205] = 9;  // group 6 of the second segment, its input 13
  std::vector<float> scales(16 * 16), minimums(16 * 16);
  for (size_t g = 8; g < 16; ++g) {
    scales[5 * 16 + g] = 0.5f * static_cast<float>(7 * g - 42);                  // 14, 21 .. 63
    minimums[5 * 16 + g] = g < 12 ? 0.0f : -0.25f * static_cast<float>(75 - g);  // 63 .. 60
  }
  std::vector<uint8_t> tile(f.tile_bytes(512));
  f.pack_codes(codes.data(), 512, 16, 512, tile.data());
  f.pack_scales(scales.data(), minimums.data(), 16, 512, tile.data());
  const uint8_t* segment = tile.data() + 256 + 8 * 256;
  EXPECT_EQ(segment[256 + 6 * 256 + 64 + 5 * 4 + 1], 0x90);  // block 1, byte 1, upper half
  EXPECT_EQ(segment[2 * 5 + 1], 0x38);                       // 0.5 as f16 is 0x3800
  EXPECT_EQ(segment[32 + 2 * 5 + 1], 0xB4);                  // -0.25 is 0xB400
  // Group 6: factors 56 = 3 * 16 + 8 and 61 = 3 * 16 + 13; group 2: 28 = 16 + 12 and 0.
  EXPECT_EQ(segment[64 + 6 * 16 + 5], 0xD8);
  EXPECT_EQ(segment[192 + 2 * 16 + 5], 0xF1);
  EXPECT_EQ(f.scale(tile.data(), 5, 14), 28.0f);
  EXPECT_EQ(f.minimum(tile.data(), 5, 14), -15.25f);
  EXPECT_EQ(weight_of_row(f, tile.data(), 512, 5)[461], 9 * 28.0f - 15.25f);
}

// An f16 times six bits comes back exactly, whichever f16 and whichever factors.
TEST(FourBit, SharedScalesComeBackExactly) {
  std::mt19937 rng(8);
  const WeightFormat& f = format_info(FormatId::kInt4K);
  const std::vector<int8_t> codes(256, 3);
  std::vector<uint8_t> tile(f.tile_bytes(256));
  for (int trial = 0; trial < 20000; ++trial) {
    float scales[8], minimums[8];
    for (float* values : {scales, minimums}) {
      const float half = f16_to_f32(static_cast<uint16_t>(rng() % 0xF800 & 0xFBFF));
      const unsigned most = 1 + rng() % 63;
      for (int g = 0; g < 8; ++g) values[g] = half * static_cast<float>(rng() % (most + 1));
    }
    f.pack_codes(codes.data(), 256, 1, 256, tile.data());
    f.pack_scales(scales, minimums, 1, 256, tile.data());
    ASSERT_EQ(f.find_invalid(tile.data(), tile.size()), -1);
    for (int g = 0; g < 8; ++g) {
      ASSERT_EQ(f.scale(tile.data(), 0, g), scales[g]) << trial;
      ASSERT_EQ(f.minimum(tile.data(), 0, g), minimums[g]) << trial;
    }
  }
}

// A scale whose sign differs from that of the largest becomes 0: the minimum alone remains.
TEST(FourBit, SharedScalesHaveOneSign) {
  const WeightFormat& f = format_info(FormatId::kInt4K);
  const std::vector<int8_t> codes(64, 3);
  const float scales[2] = {-0.5f, 0.25f}, minimums[2] = {1.0f, -4.0f};
  std::vector<uint8_t> tile(f.tile_bytes(64));
  f.pack_codes(codes.data(), 64, 1, 64, tile.data());
  f.pack_scales(scales, minimums, 1, 64, tile.data());
  EXPECT_EQ(f.scale(tile.data(), 0, 0), -0.5f);
  EXPECT_EQ(f.scale(tile.data(), 0, 1), 0.0f);
  EXPECT_EQ(f.minimum(tile.data(), 0, 0), 0.0f);
  EXPECT_EQ(f.minimum(tile.data(), 0, 1), -4.0f);
}

TEST(FourBit, EveryPowerOfTwoComesBack) {
  const WeightFormat& fp4 = format_info(FormatId::kFp4);
  for (int byte = 0; byte < 255; ++byte) {
    const float scale = std::ldexp(1.0f, byte - 128);
    std::vector<uint8_t> tile(fp4.tile_bytes(32));
    const int8_t codes[32] = {1};
    fp4.pack_codes(codes, 32, 1, 32, tile.data());
    fp4.pack_scales(&scale, nullptr, 1, 32, tile.data());
    ASSERT_EQ(tile[0], byte);
    ASSERT_EQ(fp4.scale(tile.data(), 0, 0), scale) << byte;
    EXPECT_EQ(fp4.find_invalid(tile.data(), tile.size()), -1) << byte;
  }
}

// Every scale that is not finite is found, and no other byte is reported.
TEST(FourBit, BadScalesAreFound) {
  for (const FormatId id : kFourBits) {
    const WeightFormat& f = format_info(id);
    const bool power = id == FormatId::kFp4;
    const bool six_bits = id == FormatId::kInt4K;
    const size_t segment = six_bits ? 256 + 8 * 256 : 64 + 256 * (power ? 4 : f.minimums ? 1 : 2);
    expect_invalid_found(f, {0x7C00, 0xFC00, 0x7E01, 0xFFFF}, [&](size_t at, uint16_t bits) {
      return at % segment < 64 && (!power || bits == 0xFFFF);
    });
  }
}

// Values that a format can represent are stored without loss, whatever the scales.
TEST(FourBit, OwnValuesAreKept) {
  std::mt19937 rng(3);
  for (const FormatId id : kFourBits) {
    const WeightFormat& f = format_info(id);
    for (const int32_t cols : {32, 100, 256}) {
      std::vector<int8_t> codes(static_cast<size_t>(7 * cols));
      for (int8_t& c : codes) c = static_cast<int8_t>(random_weight_code(f, rng));
      for (size_t row = 0; row < 7;
           ++row) {  // the extreme codes in every group determine the scale
        for (int32_t g = 0; g + 1 < cols; g += 32) {
          const auto at = row * static_cast<size_t>(cols) + static_cast<size_t>(g);
          codes[at] = static_cast<int8_t>(extreme_weight_code(f, -1));
          codes[at + 1] = static_cast<int8_t>(extreme_weight_code(f, 1));
        }
      }
      std::vector<uint8_t> tile(f.tile_bytes(cols));
      f.pack_codes(codes.data(), cols, 7, cols, tile.data());
      put_random_scales(f, 7, cols, rng, tile.data());
      std::vector<float> w(codes.size());
      for (int r = 0; r < 7; ++r) {
        read_weights(f, tile.data(), cols, r, &w[static_cast<size_t>(r * cols)]);
      }
      // Minimums are rounded to f16; in int4_k, scales and minimums to six bits.
      const double most = id == FormatId::kInt4K ? 0.02 : f.minimums ? 1e-3 : 0.0;
      EXPECT_LE(relative_error(w, stored(f, w, cols)), most) << f.name << " " << cols;
    }
  }
}

TEST(FourBit, ErrorIsSmall) {
  const std::vector<float> w = normals(16 * 1024, 5, 0.02f);
  const auto relative = [&](FormatId id) {
    return relative_error(w, stored(format_info(id), w, 1024));
  };
  EXPECT_LT(relative(FormatId::kInt4), 0.083);
  EXPECT_LT(relative(FormatId::kInt4Min), 0.075);
  EXPECT_LT(relative(FormatId::kInt4K), 0.077);
  EXPECT_LT(relative(FormatId::kNl4), 0.076);
  EXPECT_LT(relative(FormatId::kNf4), 0.078);
  EXPECT_LT(relative(FormatId::kFp4), 0.115);
}

// A group that differs from the others of its segment costs little: minimums have one sign.
TEST(FourBit, OneGroupWithoutNegativeWeightsIsHarmless) {
  const WeightFormat& f = format_info(FormatId::kInt4K);
  for (const float mean : {5.0f, 10.0f, -10.0f}) {
    std::vector<float> w = normals(16 * 256, 9, 1.0f);
    for (size_t row = 0; row < 16; ++row) {
      for (size_t i = 96; i < 128; ++i) w[row * 256 + i] += mean;
    }
    EXPECT_LT(relative_error(w, stored(f, w, 256)), 0.06) << mean;
  }
  std::vector<float> constant = normals(256, 10, 1.0f);
  std::fill(constant.begin() + 96, constant.begin() + 128, 4.0f);
  EXPECT_LT(relative_error(constant, stored(f, constant, 256)), 0.06);
}

// Inputs with more importance get smaller errors at the expense of the others.
TEST(FourBit, ImportanceDecides) {
  const std::vector<float> w = normals(16 * 256, 6, 1.0f);
  std::vector<float> importance(256);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 8 == 0 ? 100.0f : 1.0f;
  for (const FormatId id : kFourBits) {
    const WeightFormat& f = format_info(id);
    const double plain = squared_error(w, stored(f, w, 256), importance);
    const double weighted = squared_error(w, stored(f, w, 256, importance.data()), importance);
    // Scales that are powers of two leave little choice.
    EXPECT_LT(weighted, (id == FormatId::kFp4 ? 0.995 : 0.97) * plain) << f.name;
    const std::vector<float> unseen(256, 0.0f);
    EXPECT_EQ(stored(f, w, 256, unseen.data()), stored(f, w, 256)) << f.name;
  }
}

TEST(FourBit, OddRows) {
  for (const FormatId id : kFourBits) {
    const WeightFormat& f = format_info(id);
    EXPECT_EQ(stored(f, std::vector<float>(70, 0.0f), 70), std::vector<float>(70, 0.0f)) << f.name;
    for (const float v : {1e-12f, 3e-8f, -0.25f, 4.0f, 1000.0f, -60000.0f}) {
      for (const float got : stored(f, std::vector<float>(70, v), 70)) {
        EXPECT_NEAR(got, v, std::fabs(v) * (id == FormatId::kFp4 ? 0.13f : 0.01f) + 3e-8f)
            << f.name;
      }
    }
    std::vector<uint8_t> tile(f.tile_bytes(3));
    const float bad[2][3] = {{0, NAN, 0}, {0, 0, -INFINITY}};
    for (const auto& row : bad) {
      const Status status = f.quantise_tile(row, 3, 1, 3, nullptr, tile.data());
      EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE) << f.name;
    }
    const float huge[1] = {1e30f};
    const Status status = f.quantise_tile(huge, 1, 1, 1, nullptr, tile.data());
    EXPECT_EQ(status.code(), id == FormatId::kFp4 ? MOE_OK : MOE_ERR_RANGE) << f.name;
  }
}

// No float16 scale is small enough for these weights: all of them become their mean.
TEST(FourBit, WeightsBelowAllScalesBecomeTheirMiddle) {
  std::vector<float> w(32);
  for (size_t i = 0; i < w.size(); ++i) w[i] = i % 2 == 0 ? 1e-7f : -1e-7f;
  w[0] = 2e-7f;
  const std::vector<float> found = stored(format_info(FormatId::kInt4Min), w, 32);
  EXPECT_LE(squared_error(w, found), 1.4 * squared_error(w, std::vector<float>(32, 0.0f)));
}

TEST(FourBit, AScaleThatIsNoNumberIsNonFinite) {
  for (const FormatId id : kFourBits) {
    const WeightFormat& f = format_info(id);
    std::vector<uint8_t> tile(f.tile_bytes(32), 0xFF);
    Matrix m;
    m.format = id;
    m.scale_kind = ScaleKind::kGroup;
    m.group = 32;
    m.rows = 16;
    m.cols = 32;
    m.tile_stride = static_cast<int64_t>(tile.size());
    m.tiles = tile.data();
    EXPECT_EQ(validate_codes(m).code(), MOE_ERR_NON_FINITE) << f.name;
  }
}

// Error messages count rows from the first row of the matrix.
TEST(FourBit, AnErrorNamesTheRowOfTheMatrix) {
  const WeightFormat& f = format_info(FormatId::kInt4);
  std::vector<float> w(16 * 32, 0.5f);
  w[5 * 32 + 7] = NAN;
  std::vector<uint8_t> tile(f.tile_bytes(32));
  const Status status = quantise_tile(f, w.data(), 32, 16, 32, nullptr, tile.data());
  EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
  EXPECT_STREQ(status.text(), "row 37: weight 7: found NaN or infinity");
}

TEST(FourBit, GroupsOfAnotherSizeAreRefused) {
  Matrix m;
  m.format = FormatId::kInt4;
  m.scale_kind = ScaleKind::kGroup;
  m.rows = m.cols = 64;
  m.tile_stride = 1 << 20;
  for (const int32_t group : {0, 64, 33, 32}) {
    m.group = group;
    EXPECT_EQ(check_matrix(m).code(), group == 32 ? MOE_OK : MOE_ERR_RANGE) << group;
  }
  m.scale_kind = ScaleKind::kRow;
  EXPECT_EQ(check_matrix(m).code(), MOE_ERR_UNSUPPORTED);
}

}  // namespace
}  // namespace moe
