// SPDX-License-Identifier: MIT
// int6_k: its layout, values stored without loss, and the quantiser's error.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/half.h"
#include "tests/support/stored_weights.h"

namespace moe {
namespace {

constexpr size_t kSegment = 320 + 16 * 192;

const WeightFormat& six_bits() { return format_info(FormatId::kInt6K); }

std::vector<float> in_six_bits(const std::vector<float>& w, int32_t cols,
                               const float* importance = nullptr) {
  return stored(six_bits(), w, cols, importance);
}

// An f16 times a signed byte per 16 weights.
std::vector<float> random_scales(size_t n_groups, std::mt19937& rng) {
  std::vector<float> scales(n_groups);
  float half = 0;
  int most = 0;
  for (size_t g = 0; g < n_groups; ++g) {
    if (g % 16 == 0) {
      half = f16_to_f32(static_cast<uint16_t>(rng() % 0x7C00 | (rng() % 2) << 15));
      most = 1 + static_cast<int>(rng() % 128);
    }
    scales[g] =
        half * static_cast<float>(static_cast<int>(rng() % static_cast<unsigned>(2 * most)) - most);
  }
  return scales;
}

TEST(Int6K, LayoutIsFixed) {
  const WeightFormat& f = six_bits();
  EXPECT_EQ(f.tile_bytes(2048), 8 * kSegment);  // 6.625 bits
  EXPECT_EQ(f.tile_bytes(1), 320u + 192);
  EXPECT_EQ(f.tile_bytes(257), kSegment + 320 + 192);

  std::vector<int8_t> codes(16 * 512, 0);
  codes[5 * 512 + 256 + 205] = 25;  // group 12 of the second segment, its input 13
  std::vector<float> scales(16 * 32, 1.0f);
  for (size_t g = 16; g < 32; ++g) scales[5 * 32 + g] = 0.5f * static_cast<float>(g);
  scales[5 * 32 + 28] = 64.0f;
  std::vector<uint8_t> tile(f.tile_bytes(512));
  f.pack_codes(codes.data(), 512, 16, 512, tile.data());
  f.pack_scales(scales.data(), nullptr, 16, 512, tile.data());
  // 57 = 3 * 16 + 9. Input 13 is in the second block, upper half of byte 1; field 3 of the third.
  const uint8_t* segment = tile.data() + kSegment;
  const uint8_t* group = segment + 320 + 12 * 192;
  EXPECT_EQ(group[64 + 5 * 4 + 1], 0x90);
  EXPECT_EQ(group[128 + 5 * 4 + 1], 0xEA);
  EXPECT_EQ(segment[2 * 5 + 1], 0xB8);  // -0.5 as f16
  EXPECT_EQ(segment[64 + 12 * 16 + 5], 0x80);
  EXPECT_EQ(segment[64 + 3 * 16 + 5], 256 - 19);
  EXPECT_EQ(f.element(tile.data(), 512, 5, 461), 25.0f);
  EXPECT_EQ(f.scale(tile.data(), 5, 28), 64.0f);
  EXPECT_EQ(f.scale(tile.data(), 5, 19), 9.5f);
  EXPECT_EQ(f.minimum(tile.data(), 5, 28), 0.0f);
}

// Scales of Q6_K come back exactly, whichever f16 and whichever factors.
TEST(Int6K, ScalesComeBackExactly) {
  std::mt19937 rng(8);
  const WeightFormat& f = six_bits();
  const std::vector<int8_t> codes(300, 3);
  std::vector<uint8_t> tile(f.tile_bytes(300));
  for (int trial = 0; trial < 20000; ++trial) {
    const std::vector<float> scales = random_scales(19, rng);
    f.pack_codes(codes.data(), 300, 1, 300, tile.data());
    f.pack_scales(scales.data(), nullptr, 1, 300, tile.data());
    ASSERT_EQ(f.find_invalid(tile.data(), tile.size()), -1);
    for (int g = 0; g < 19; ++g) {
      ASSERT_EQ(f.scale(tile.data(), 0, g), scales[static_cast<size_t>(g)]) << trial << " " << g;
    }
  }
}

// The extreme factors of either sign of the f16 beside each other.
TEST(Int6K, ExtremeFactorsComeBack) {
  const WeightFormat& f = six_bits();
  const std::vector<int8_t> codes(32, 32);
  std::vector<uint8_t> tile(f.tile_bytes(32));
  for (const float half : {0.75f, -0.75f, 0x1p-24f, -65504.0f}) {
    const float scales[2] = {-128 * half, 127 * half};
    f.pack_codes(codes.data(), 32, 1, 32, tile.data());
    f.pack_scales(scales, nullptr, 1, 32, tile.data());
    EXPECT_EQ(f.scale(tile.data(), 0, 0), scales[0]);
    EXPECT_EQ(f.scale(tile.data(), 0, 1), scales[1]);
    EXPECT_EQ(f.element(tile.data(), 32, 0, 31), 31.0f);  // there is no code 32
  }
}

TEST(Int6K, BadScalesAreFound) {
  expect_invalid_found(six_bits(), {0x7C00, 0xFC00, 0x7E01, 0x8080}, [](size_t at, uint16_t bits) {
    return at % kSegment < 32 && !is_finite_half(bits);
  });
}

TEST(Int6K, ErrorIsSmall) {
  std::vector<float> w = normals(16 * 1024, 5, 0.02f);
  EXPECT_LT(relative_error(w, in_six_bits(w, 1024)), 0.017);
  for (size_t row = 0; row < 16; ++row) w[row * 1024 + row] = 1.0f;  // 50 standard deviations
  EXPECT_LT(relative_error(w, in_six_bits(w, 1024)), 0.035);
}

TEST(Int6K, ImportanceDecides) {
  const std::vector<float> w = normals(16 * 256, 6, 0.02f);
  std::vector<float> importance(256);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 8 == 0 ? 100.0f : 1.0f;
  EXPECT_LT(relative_error(w, in_six_bits(w, 256, importance.data()), importance),
            0.9 * relative_error(w, in_six_bits(w, 256), importance));
  const std::vector<float> unseen(256, 0.0f);
  EXPECT_EQ(in_six_bits(w, 256, unseen.data()), in_six_bits(w, 256));
}

TEST(Int6K, OddRows) {
  const WeightFormat& f = six_bits();
  EXPECT_EQ(in_six_bits(std::vector<float>(70, 0.0f), 70), std::vector<float>(70, 0.0f));
  for (const float v : {1e-12f, 1e-6f, 0x1.de1ffep-14f, -0.25f, 1000.0f, -60000.0f, 2e8f}) {
    for (const float got : in_six_bits(std::vector<float>(70, v), 70)) {
      EXPECT_NEAR(got, v, std::fabs(v) * 0.001f + 4e-6f);
    }
  }
  // Near the largest weight, with smaller ones beside it.
  for (const float large : {2.3e8f, 2.36e8f, -2.5e8f, 2.59e8f}) {
    std::vector<float> row(32, 1e7f);
    row[0] = large;
    EXPECT_LT(relative_error(row, in_six_bits(row, 32)), 0.03) << large;
  }
  // Near the smallest f16.
  for (const float deviation : {1e-6f, 3e-7f}) {
    const std::vector<float> small = normals(256, 8, deviation);
    EXPECT_LT(relative_error(small, in_six_bits(small, 256)), 0.12) << deviation;
  }
  // One large group leaves the others of its segment zero, not wild.
  std::vector<float> w = normals(256, 7, 1e-3f);
  w[40] = 1e6f;
  const std::vector<float> got = in_six_bits(w, 256);
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(got[i], w[i], i == 40 ? 1e3f : 1e-2f) << i;
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
