// SPDX-License-Identifier: MIT
#include "quant/lossless.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace moe {
namespace {

// A matrix whose element (r, c) is 0 or +-scale_of(r, c).
template <class ScaleOf>
std::vector<float> make(int rows, int cols, ScaleOf scale_of) {
  std::mt19937 rng(4);
  std::vector<float> w;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const float sign = static_cast<float>(static_cast<int>(rng() % 3) - 1);
      w.push_back(sign * scale_of(r, c));
    }
  }
  return w;
}

TernaryFit detect(const std::vector<float>& w, int32_t cols) {
  TernaryDetector d(cols);
  for (size_t at = 0; at < w.size(); at += static_cast<size_t>(cols)) d.add_row(&w[at]);
  return d.fit();
}

// Splits every row into codes and scales and reproduces it bit for bit.
void expect_lossless(const std::vector<float>& w, int32_t cols, const TernaryFit& fit) {
  std::vector<int8_t> codes(static_cast<size_t>(cols));
  std::vector<float> scales(static_cast<size_t>(cols));
  for (size_t at = 0; at < w.size(); at += static_cast<size_t>(cols)) {
    ternary_split(fit, &w[at], cols, codes.data(), scales.data());
    for (int32_t c = 0; c < cols; ++c) {
      const float scale = fit.scale_kind == ScaleKind::kTensor ? fit.tensor_scale
                          : fit.scale_kind == ScaleKind::kRow
                              ? scales[0]
                              : scales[static_cast<size_t>(c / fit.group)];
      ASSERT_EQ(static_cast<float>(codes[static_cast<size_t>(c)]) * scale,
                w[at + static_cast<size_t>(c)]);
    }
  }
}

TEST(TernaryDetector, FindsTheCoarsestScale) {
  const int cols = 700;  // not a multiple of any group
  struct Case {
    std::vector<float> w;
    ScaleKind kind;
    int32_t group;
  };
  const Case cases[] = {
      {make(9, cols, [](int, int) { return 0.0371f; }), ScaleKind::kTensor, 0},
      {make(9, cols, [](int r, int) { return 0.01f * static_cast<float>(r + 1); }), ScaleKind::kRow,
       0},
      {make(9, cols, [](int, int c) { return c < 256 ? 0.5f : 0.25f; }), ScaleKind::kGroup, 256},
      {make(9, cols, [](int r, int c) { return r == 5 && c / 128 == 1 ? 0.5f : 0.25f; }),
       ScaleKind::kGroup, 128},
      {make(9, cols, [](int r, int c) { return 1e-3f + static_cast<float>(r + c / 64); }),
       ScaleKind::kGroup, 64},
      {make(9, cols, [](int r, int c) { return r == 8 && c == 699 ? 0.5f : 0.25f; }),
       ScaleKind::kNone, 0},
  };
  for (Case c : cases) {
    c.w.back() = c.kind == ScaleKind::kNone ? 0.5f : c.w.back();
    const TernaryFit fit = detect(c.w, cols);
    EXPECT_EQ(fit.scale_kind, c.kind);
    EXPECT_EQ(fit.group, c.group);
    if (fit.scale_kind != ScaleKind::kNone) expect_lossless(c.w, cols, fit);
  }
}

TEST(TernaryDetector, OneBitOfDifferenceIsNotLossless) {
  std::vector<float> w = make(3, 64, [](int, int) { return 0.1f; });
  w[70] = std::nextafter(0.1f, 1.0f);
  w[71] = 0.1f;
  EXPECT_EQ(detect(w, 64).scale_kind, ScaleKind::kNone);
}

TEST(TernaryDetector, NegativeZeroIsZero) {
  const std::vector<float> w = {-0.0f, 0.5f, -0.5f, 0.0f};
  const TernaryFit fit = detect(w, 4);
  EXPECT_EQ(fit.scale_kind, ScaleKind::kTensor);
  EXPECT_EQ(fit.tensor_scale, 0.5f);
}

TEST(TernaryDetector, ZerosAndZeroRows) {
  EXPECT_EQ(detect(std::vector<float>(64, 0.0f), 16).tensor_scale, 1.0f);
  std::vector<float> w(64, 0.0f);
  w[20] = -3.0f;
  const TernaryFit fit = detect(w, 16);
  EXPECT_EQ(fit.scale_kind, ScaleKind::kTensor);
  EXPECT_EQ(fit.tensor_scale, 3.0f);
  expect_lossless(w, 16, fit);
}

TEST(TernaryDetector, NotFiniteIsNotTernary) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> w(300, 0.5f);
    w[123] = bad;
    EXPECT_EQ(detect(w, 300).scale_kind, ScaleKind::kNone);
    std::vector<float> alone(16, 0.0f);
    alone[3] = bad;
    EXPECT_EQ(detect(alone, 16).scale_kind, ScaleKind::kNone);
  }
}

TEST(TernaryDetector, SaysEarlyThatNothingFits) {
  TernaryDetector d(4);
  const float row[4] = {1, 2, 3, 4};
  EXPECT_TRUE(d.possible());
  d.add_row(row);
  EXPECT_FALSE(d.possible());
}

}  // namespace
}  // namespace moe
