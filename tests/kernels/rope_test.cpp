// SPDX-License-Identifier: MIT
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace moe {
namespace {

std::vector<float> table(const RopeConfig& c, int context) {
  std::vector<float> out(static_cast<size_t>(context) * static_cast<size_t>(c.dims), -9);
  const Status s = build_rope_table(c, context, out.data());
  EXPECT_TRUE(s.ok()) << s.text();
  return out;
}

RopeConfig plain(int dims, float theta) {
  RopeConfig c;
  c.kind = RopeKind::kHalf;
  c.dims = dims;
  c.theta = theta;
  return c;
}

// The frequency of column j, computed from position 1, where the angles are small.
double frequency_of(const std::vector<float>& t, const RopeConfig& c, int j, double scale = 1) {
  const auto at = static_cast<size_t>(c.dims + 2 * j);
  return std::atan2(t[at + 1] / scale, t[at] / scale);
}

TEST(Rope, PlainTableIsExactAtEveryPosition) {
  const RopeConfig c = plain(10, 10000);
  const int context = 5000;
  const std::vector<float> t = table(c, context);
  for (int p = 0; p < context; p += 7) {
    for (int j = 0; j < 5; ++j) {
      const double angle = p * std::pow(10000.0, -2.0 * j / 10);
      const auto at = static_cast<size_t>(p * 10 + 2 * j);
      ASSERT_NEAR(t[at], std::cos(angle), 1e-7);
      ASSERT_NEAR(t[at + 1], std::sin(angle), 1e-7);
    }
  }
}

TEST(Rope, RowsDoNotDependOnTheContext) {
  const RopeConfig c = plain(8, 500000);
  const std::vector<float> small = table(c, 130);
  const std::vector<float> large = table(c, 1000);
  EXPECT_TRUE(std::equal(small.begin(), small.end(), large.begin()));
}

TEST(Rope, LinearDividesPositions) {
  RopeConfig c = plain(8, 10000);
  const std::vector<float> base = table(c, 64);
  c.scaling = RopeScaling::kLinear;
  c.factor = 4;
  const std::vector<float> scaled = table(c, 64);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(scaled[8 * 40 + i], base[8 * 10 + i], 1e-7);
}

// `expected` are the inverse frequencies of transformers' ROPE_INIT_FUNCTIONS for the same
// parameters.
void expect_frequencies(const RopeConfig& c, int context, const std::vector<double>& expected,
                        double scale) {
  const std::vector<float> t = table(c, context);
  EXPECT_NEAR(t[0], scale, 1e-6 * scale);
  for (size_t j = 0; j < expected.size(); ++j) {
    EXPECT_NEAR(frequency_of(t, c, static_cast<int>(j), scale), expected[j],
                2e-6 * expected[j] + 1e-9)
        << j;
  }
}

TEST(Rope, Llama3) {
  RopeConfig c = plain(16, 500000);
  c.scaling = RopeScaling::kLlama3;
  c.factor = 8;
  c.low_freq_factor = 1;
  c.high_freq_factor = 4;
  c.original_context = 8192;
  expect_frequencies(c, 8,
                     {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05,
                      6.64786967e-06, 1.28917316e-06},
                     1);
}

TEST(Rope, Yarn) {
  RopeConfig c = plain(16, 10000);
  c.scaling = RopeScaling::kYarn;
  c.factor = 4;
  c.original_context = 4096;
  const std::vector<double> truncated = {1.0,           0.316227764,   0.1,         0.0256935060,
                                         0.00624999963, 0.00138349656, 0.000250000, 7.90569466e-05};
  expect_frequencies(c, 8, truncated, 1.138629436);
  c.attention_factor = 1.5f;
  expect_frequencies(c, 8, truncated, 1.5);
  c.attention_factor = 0;
  c.theta = 150000;
  c.factor = 32;
  c.truncate = false;
  expect_frequencies(c, 8,
                     {1.0, 0.225418001, 0.0508132726, 0.00679495931, 0.000456483918, 1.81883370e-05,
                      4.09997847e-06, 9.24208962e-07},
                     1.34657359);
}

TEST(Rope, Longrope) {
  RopeConfig c = plain(16, 10000);
  c.scaling = RopeScaling::kLongrope;
  c.factor = 32;
  c.original_context = 4096;
  std::vector<float> short_factor(8);
  std::vector<float> long_factor(8);
  for (size_t i = 0; i < 8; ++i) {
    short_factor[i] = 1 + 0.1f * static_cast<float>(i);
    long_factor[i] = 1 + 1.5f * static_cast<float>(i);
  }
  c.short_factor = short_factor.data();
  c.long_factor = long_factor.data();
  expect_frequencies(c, 4096,
                     {1.0, 0.287479758, 0.0833333358, 0.0243252143, 0.00714285718, 0.00210818532,
                      0.000624999986, 0.000186016332},
                     1.190238071);
  const std::vector<double> stretched = {1.0,           0.126491114,    0.025,  0.00574959582,
                                         0.00142857141, 0.000372032693, 0.0001, 2.74980684e-05};
  expect_frequencies(c, 5000, stretched, 1.190238071);
  c.factor = 1;  // derived from the context: 32 times the original one
  expect_frequencies(c, 131072, stretched, 1.190238071);
}

// transformers: ROPE_INIT_FUNCTIONS["proportional"] of a head of 16 with partial_rotary_factor 0.25
// turns two of eight pairs, with the frequencies of a whole rotation.
TEST(Rope, Proportional) {
  RopeConfig c = plain(16, 1e6f);
  c.scaling = RopeScaling::kProportional;
  c.turning = 4;
  expect_frequencies(c, 8, {1.0, 0.177827939, 0, 0, 0, 0, 0, 0}, 1);
  c.factor = 4;
  expect_frequencies(c, 8, {0.25, 0.0444569849, 0, 0, 0, 0, 0, 0}, 1);
  std::vector<float> out(8 * 16);
  ASSERT_TRUE(build_rope_table(c, 8, out.data()).ok());
  EXPECT_EQ(out[7 * 16 + 4], 1);  // exactly, so that the others stay as they are
  EXPECT_EQ(out[7 * 16 + 5], 0);
  for (const int32_t bad : {-2, 3, 18}) {
    c.turning = bad;
    EXPECT_STREQ(
        validate_rope(c).text(),
        ("rope: turning: expected an even number in 0..16, found " + std::to_string(bad)).c_str());
  }
}

TEST(Rope, RejectsWhatItCannotCompute) {
  std::vector<float> out(64);
  RopeConfig c = plain(7, 10000);
  EXPECT_EQ(build_rope_table(c, 4, out.data()).code(), MOE_ERR_RANGE);
  c = plain(8, -1);
  EXPECT_EQ(build_rope_table(c, 4, out.data()).code(), MOE_ERR_RANGE);
  c = plain(8, std::nanf(""));
  EXPECT_EQ(build_rope_table(c, 4, out.data()).code(), MOE_ERR_RANGE);
  c = plain(8, 10000);
  EXPECT_EQ(build_rope_table(c, 0, out.data()).code(), MOE_ERR_RANGE);
  c.scaling = RopeScaling::kLongrope;
  c.original_context = 16;
  EXPECT_EQ(build_rope_table(c, 4, out.data()).code(), MOE_ERR_ARGUMENT);
  c.scaling = RopeScaling::kYarn;
  c.original_context = 0;
  EXPECT_EQ(build_rope_table(c, 4, out.data()).code(), MOE_ERR_RANGE);
  c.original_context = 64;
  c.theta = 1;
  EXPECT_EQ(build_rope_table(c, 4, out.data()).code(), MOE_ERR_RANGE);
}

}  // namespace
}  // namespace moe
