// SPDX-License-Identifier: MIT
// int2_k and int3_k: their layouts, values stored without loss, and the quantisers' errors.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/half.h"
#include "tests/support/stored_weights.h"

namespace moe {
namespace {

constexpr size_t kSegment2 = 320 + 16 * 64;
constexpr size_t kSegment3 = 256 + 8 * 192;

const WeightFormat& two_bits() { return format_info(FormatId::kInt2K); }
const WeightFormat& three_bits() { return format_info(FormatId::kInt3K); }

TEST(FewBits, BytesAreAtMostThreePercentMoreThanGguf) {
  EXPECT_EQ(two_bits().tile_bytes(2048), 16u * 8 * 84);  // Q2_K: 84 bytes for 256 weights
  EXPECT_EQ(three_bits().tile_bytes(2048), 8 * kSegment3);
  EXPECT_LE(static_cast<double>(three_bits().tile_bytes(2048)), 1.03 * 16 * 8 * 110);  // Q3_K: 110
  EXPECT_EQ(two_bits().tile_bytes(1), 320u + 64);
  EXPECT_EQ(two_bits().tile_bytes(257), kSegment2 + 320 + 64);
  EXPECT_EQ(three_bits().tile_bytes(1), 256u + 192);
  EXPECT_EQ(three_bits().tile_bytes(33), 256u + 2 * 192);
  EXPECT_EQ(three_bits().tile_bytes(257), kSegment3 + 256 + 192);
}

TEST(FewBits, LayoutOfTwoBitsIsFixed) {
  const WeightFormat& f = two_bits();
  std::vector<int8_t> codes(16 * 512, 0);
  codes[5 * 512 + 256 + 205] = 2;  // group 12 of the second segment, its input 13
  std::vector<float> scales(16 * 32, 1.0f), minimums(16 * 32, 0.0f);
  for (size_t g = 16; g < 32; ++g) {
    scales[5 * 32 + g] = 0.5f * static_cast<float>(g - 16);
    minimums[5 * 32 + g] = -0.25f * static_cast<float>(31 - g);
  }
  std::vector<uint8_t> tile(f.tile_bytes(512));
  f.pack_codes(codes.data(), 512, 16, 512, tile.data());
  f.pack_scales(scales.data(), minimums.data(), 16, 512, tile.data());
  const uint8_t* segment = tile.data() + kSegment2;
  EXPECT_EQ(segment[320 + 12 * 64 + 5 * 4 + 1], 2 << 6);
  EXPECT_EQ(segment[2 * 5 + 1], 0x38);       // 0.5 as f16
  EXPECT_EQ(segment[32 + 2 * 5 + 1], 0xB4);  // -0.25
  EXPECT_EQ(segment[64 + 12 * 16 + 5], 12 | 3 << 4);
  EXPECT_EQ(f.element(tile.data(), 512, 5, 461), 2.0f);
  EXPECT_EQ(f.scale(tile.data(), 5, 28), 6.0f);
  EXPECT_EQ(f.minimum(tile.data(), 5, 28), -0.75f);
}

TEST(FewBits, LayoutOfThreeBitsIsFixed) {
  const WeightFormat& f = three_bits();
  std::vector<int8_t> codes(16 * 512, 0);
  codes[5 * 512 + 256 + 205] = -3;  // group 12 of the second segment, its input 13
  codes[5 * 512 + 256 + 210] = 3;   // group 13, input 2
  std::vector<float> scales(16 * 32, 1.0f);
  for (size_t g = 16; g < 32; ++g) scales[5 * 32 + g] = 0.5f * static_cast<float>(g);
  scales[5 * 32 + 27] = 16.0f;
  std::vector<uint8_t> tile(f.tile_bytes(512));
  f.pack_codes(codes.data(), 512, 16, 512, tile.data());
  f.pack_scales(scales.data(), nullptr, 16, 512, tile.data());
  const uint8_t* segment = tile.data() + kSegment3;
  const uint8_t* pair = segment + 256 + 6 * 192;
  EXPECT_EQ(pair[5 * 4 + 1], 1 << 6);      // -3 + 4 = 1
  EXPECT_EQ(pair[64 + 5 * 4 + 2], 3);      // 3 + 4 = 7
  EXPECT_EQ(pair[128 + 5 * 4 + 1], 0xF7);  // without the third bit of inputs 12 .. 15 of group 12
  EXPECT_EQ(pair[128 + 5 * 4 + 2], 0xFF);
  EXPECT_EQ(segment[2 * 5 + 1], 0xB8);  // -0.5: the largest factor is -32
  // Groups 8 to 11 of the segment: -24, -25, -26, and -32 in the upper bits of the three.
  EXPECT_EQ(segment[64 + 6 * 16 + 5], (64 - 24) | 0 << 6);
  EXPECT_EQ(segment[64 + 7 * 16 + 5], (64 - 25) | 0 << 6);
  EXPECT_EQ(segment[64 + 8 * 16 + 5], (64 - 26) | 2 << 6);
  EXPECT_EQ(f.element(tile.data(), 512, 5, 461), -3.0f);
  EXPECT_EQ(f.element(tile.data(), 512, 5, 466), 3.0f);
  EXPECT_EQ(f.scale(tile.data(), 5, 27), 16.0f);
  EXPECT_EQ(f.scale(tile.data(), 5, 19), 9.5f);
  EXPECT_EQ(f.minimum(tile.data(), 5, 28), 0.0f);
}

// An f16 times a factor in [least, most] per 16 weights.
std::vector<float> random_products(size_t n_groups, int least, int most, std::mt19937& rng) {
  std::vector<float> out(n_groups);
  float half = 0;
  int bound = 0;
  for (size_t g = 0; g < n_groups; ++g) {
    if (g % 16 == 0) {
      half = f16_to_f32(static_cast<uint16_t>(rng() % 0x7C00 | (rng() % 2) << 15));
      bound = static_cast<int>(rng() % static_cast<unsigned>(most + 1));
    }
    const int lowest = least < 0 && bound == most ? least : least < 0 ? -bound : 0;
    out[g] =
        half * static_cast<float>(
                   lowest + static_cast<int>(rng() % static_cast<unsigned>(bound - lowest + 1)));
  }
  return out;
}

// Scales and minimums of Q2_K and Q3_K come back exactly, whichever f16 and whichever factors.
TEST(FewBits, ScalesComeBackExactly) {
  std::mt19937 rng(8);
  const std::vector<int8_t> codes(300, 3);
  for (const WeightFormat* f : {&two_bits(), &three_bits()}) {
    std::vector<uint8_t> tile(f->tile_bytes(300));
    const int least = f->minimums ? 0 : -32, most = f->minimums ? 15 : 31;
    for (int trial = 0; trial < 10000; ++trial) {
      const std::vector<float> scales = random_products(19, least, most, rng);
      const std::vector<float> minimums = random_products(19, least, most, rng);
      f->pack_codes(codes.data(), 300, 1, 300, tile.data());
      f->pack_scales(scales.data(), minimums.data(), 1, 300, tile.data());
      ASSERT_EQ(f->find_invalid(tile.data(), tile.size()), -1);
      for (int g = 0; g < 19; ++g) {
        const auto at = static_cast<size_t>(g);
        ASSERT_EQ(f->scale(tile.data(), 0, g), scales[at]) << f->name << trial << " " << g;
        ASSERT_EQ(f->minimum(tile.data(), 0, g), f->minimums ? minimums[at] : 0.0f)
            << trial << " " << g;
      }
    }
  }
}

TEST(FewBits, ExtremeFactorsComeBack) {
  const WeightFormat& f = three_bits();
  const std::vector<int8_t> codes(32, 4);
  std::vector<uint8_t> tile(f.tile_bytes(32));
  for (const float half : {0.75f, -0.75f, 0x1p-24f, -65504.0f}) {
    const float scales[2] = {-32 * half, 31 * half};
    f.pack_codes(codes.data(), 32, 1, 32, tile.data());
    f.pack_scales(scales, nullptr, 1, 32, tile.data());
    EXPECT_EQ(f.scale(tile.data(), 0, 0), scales[0]);
    EXPECT_EQ(f.scale(tile.data(), 0, 1), scales[1]);
    EXPECT_EQ(f.element(tile.data(), 32, 0, 31), 3.0f);  // there is no code 4
  }
}

// In int2_k the halves are those of the scale and of the minimum.
TEST(FewBits, BadScalesAreFound) {
  for (const WeightFormat* f : {&two_bits(), &three_bits()}) {
    const size_t segment = f->minimums ? kSegment2 : kSegment3;
    const size_t halves = f->minimums ? 64 : 32;
    expect_invalid_found(*f, {0x7C00, 0xFC00, 0x7E01, 0x8080}, [&](size_t at, uint16_t bits) {
      return at % segment < halves && !is_finite_half(bits);
    });
  }
}

// Normal weights lose at least 0.343 (two bits) and 0.186 (three) of their norm with the best
// fixed levels of one scale (Max, Quantizing for Minimum Distortion, 1960: 0.1175 and 0.03454 of
// the variance); a scale per 16 weights does better.
TEST(FewBits, ErrorIsSmall) {
  const std::vector<float> w = normals(16 * 1024, 5, 0.02f);
  EXPECT_LT(relative_error(w, stored(two_bits(), w, 1024)), 0.31);
  EXPECT_LT(relative_error(w, stored(three_bits(), w, 1024)), 0.165);
}

TEST(FewBits, ImportanceDecides) {
  const std::vector<float> w = normals(16 * 256, 6, 0.02f);
  std::vector<float> importance(256);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 8 == 0 ? 100.0f : 1.0f;
  const std::vector<float> unseen(256, 0.0f);
  for (const WeightFormat* f : {&two_bits(), &three_bits()}) {
    EXPECT_LT(relative_error(w, stored(*f, w, 256, importance.data()), importance),
              0.9 * relative_error(w, stored(*f, w, 256), importance));
    EXPECT_EQ(stored(*f, w, 256, unseen.data()), stored(*f, w, 256));
  }
}

TEST(FewBits, OddRows) {
  for (const WeightFormat* f : {&two_bits(), &three_bits()}) {
    EXPECT_EQ(stored(*f, std::vector<float>(70, 0.0f), 70), std::vector<float>(70, 0.0f));
    for (const float v : {1e-6f, 0x1.de1ffep-14f, -0.25f, 1000.0f, -60000.0f}) {
      for (const float got : stored(*f, std::vector<float>(70, v), 70)) {
        EXPECT_NEAR(got, v, std::fabs(v) * 0.001f + 4e-6f) << f->name;
      }
    }
    // One large group leaves the others of its segment zero, not wild.
    std::vector<float> w = normals(256, 7, 1e-3f);
    w[40] = 6e4f;
    const std::vector<float> got = stored(*f, w, 256);
    for (size_t i = 0; i < w.size(); ++i) {
      if (i / 16 == 2) continue;
      EXPECT_NEAR(got[i], w[i], 1e-2f) << f->name << " " << i;
    }
    EXPECT_NEAR(got[40], 6e4f, 1e2f) << f->name;
    std::vector<uint8_t> tile(f->tile_bytes(3));
    const float bad[2][3] = {{0, NAN, 0}, {0, 0, -INFINITY}};
    for (const auto& row : bad) {
      const Status status = f->quantise_tile(row, 3, 1, 3, nullptr, tile.data());
      EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
    }
    const float huge[1] = {1e30f};
    EXPECT_EQ(f->quantise_tile(huge, 1, 1, 1, nullptr, tile.data()).code(), MOE_ERR_RANGE);
  }
}

}  // namespace
}  // namespace moe
