// SPDX-License-Identifier: MIT
#include "quant/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/support/quantise_whole.h"

namespace moe {
namespace {

TEST(AbsmeanTernary, RoundsHalfToEvenAndClips) {
  // The mean of |w| is 2, so halves of the scale are exact.
  const float w[8] = {3, -1, -3, 1, 4, -2, 0, 2};
  int8_t codes[8];
  float scale = 0;
  ASSERT_TRUE(absmean_ternary(w, 2, 4, codes, &scale).ok());
  EXPECT_EQ(scale, 2.0f);
  const int8_t want[8] = {1, 0, -1, 0, 1, -1, 0, 1};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(codes[i], want[i]) << i;
}

TEST(AbsmeanTernary, TinyWeightsKeepTheFloor) {
  const float w[2] = {1e-9f, -1e-9f};
  int8_t codes[2] = {5, 5};
  float scale = 0;
  ASSERT_TRUE(absmean_ternary(w, 1, 2, codes, &scale).ok());
  EXPECT_EQ(scale, 1e-5f);
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[1], 0);
}

TEST(AbsmeanTernary, StreamedEqualsWhole) {
  std::mt19937 rng(5);
  std::normal_distribution<float> dist(0.0f, 0.02f);
  std::vector<float> w(37 * 50);
  for (float& v : w) v = dist(rng);
  std::vector<int8_t> codes(w.size());
  float scale = 0;
  ASSERT_TRUE(absmean_ternary(w.data(), 37, 50, codes.data(), &scale).ok());
  AbsMean mean;
  for (int r = 0; r < 37; ++r) ASSERT_TRUE(mean.add(&w[static_cast<size_t>(r) * 50], 50).ok());
  std::vector<int8_t> row(50);
  for (size_t r = 0; r < 37; ++r) {
    ternary_codes(&w[r * 50], 50, *mean.scale(), row.data());
    for (size_t c = 0; c < 50; ++c) EXPECT_EQ(row[c], codes[r * 50 + c]);
  }
  EXPECT_EQ(static_cast<float>(*mean.scale()), scale);
}

TEST(AbsmeanTernary, RefusesWhatHasNoMean) {
  int8_t codes[2];
  float scale = 0;
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const float w[2] = {1, bad};
    EXPECT_EQ(absmean_ternary(w, 1, 2, codes, &scale).code(), MOE_ERR_NON_FINITE);
  }
  EXPECT_EQ(absmean_ternary(nullptr, 0, 4, codes, &scale).code(), MOE_ERR_SHAPE);
}

TEST(Int8Rows, ScaleIsAbsmaxOver127) {
  const float w[8] = {127, -1.5f, 2.5f, -127, 0, 0, 0, 0};
  int8_t codes[8];
  float scales[2];
  ASSERT_TRUE(int8_rows(w, 2, 4, codes, scales).ok());
  EXPECT_EQ(scales[0], 1.0f);
  EXPECT_EQ(scales[1], 1.0f);
  const int8_t want[8] = {127, -2, 2, -127, 0, 0, 0, 0};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(codes[i], want[i]) << i;
}

TEST(Int8Rows, ErrorStaysWithinHalfAStep) {
  std::mt19937 rng(6);
  std::normal_distribution<float> dist(0.0f, 1.0f);
  for (const float size : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
    std::vector<float> w(300);
    for (float& v : w) v = dist(rng) * size;
    std::vector<int8_t> codes(300);
    float scale = 0;
    ASSERT_TRUE(int8_row(w.data(), 300, codes.data(), &scale).ok());
    for (size_t i = 0; i < 300; ++i) {
      EXPECT_LE(std::abs(static_cast<double>(codes[i]) * static_cast<double>(scale) -
                         static_cast<double>(w[i])),
                0.5001 * static_cast<double>(scale));
    }
  }
}

TEST(Int8Rows, DenormalAndBadRows) {
  const float tiny[2] = {1e-45f, -1e-45f};
  int8_t codes[2];
  float scale = 0;
  ASSERT_TRUE(int8_row(tiny, 2, codes, &scale).ok());
  EXPECT_EQ(scale, 1.0f);
  EXPECT_EQ(codes[0], 0);
  // 180 and 3 times the smallest denormal; the scale is that denormal, so 180 is clipped.
  const float clipped[3] = {180 * 0x1p-149f, -180 * 0x1p-149f, 3 * 0x1p-149f};
  int8_t three[3];
  ASSERT_TRUE(int8_row(clipped, 3, three, &scale).ok());
  EXPECT_EQ(scale, 0x1p-149f);
  EXPECT_EQ(three[0], 127);
  EXPECT_EQ(three[1], -127);
  EXPECT_EQ(three[2], 3);
  const float bad[2] = {1, NAN};
  EXPECT_EQ(int8_rows(bad, 1, 2, codes, &scale).code(), MOE_ERR_NON_FINITE);
}

TEST(Activations, CodesAndScales) {
  const float x[9] = {0.5f, -127, 3.5f, -0.5f, 1.5f, -2.5f, 127, 2.5f, -1.5f};
  int8_t codes[9];
  float scale = 0;
  ASSERT_TRUE(absmax_int8(x, 1, 9, codes, &scale).ok());
  EXPECT_EQ(scale, 1.0f);
  const int8_t want[9] = {0, -127, 4, 0, 2, -2, 127, 2, -2};
  for (int i = 0; i < 9; ++i) EXPECT_EQ(codes[i], want[i]) << i;

  const float zeros[3] = {0, -0.0f, 0};
  ASSERT_TRUE(absmax_int8(zeros, 1, 3, codes, &scale).ok());
  EXPECT_EQ(scale, 127.0f / 1e-5f);
  EXPECT_EQ(codes[1], 0);

  const ActScale s = quantise_activations(x, 9, -127, codes);
  EXPECT_EQ(s.scale, 1.0f);
  const float bad[2] = {1, -INFINITY};
  EXPECT_EQ(absmax_int8(bad, 1, 2, codes, &scale).code(), MOE_ERR_NON_FINITE);
  EXPECT_TRUE(std::isnan(quantise_activations(bad, 2, -128, codes).scale));
}

}  // namespace
}  // namespace moe
