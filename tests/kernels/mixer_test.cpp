// SPDX-License-Identifier: MIT
// Token mixers against their definitions, on every instruction set, in any parts.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/mixers/table.h"
#include "tests/kernels/mixer_checks.h"

namespace moe {
namespace {

using Floats = std::vector<float>;

struct ShortConvCase {
  int32_t d;
  int32_t length;
  int32_t n_rows;
  bool bias;
};

/// A case with its numbers, and what is to come out.
struct ShortConv {
  explicit ShortConv(const ShortConvCase& c) : of(c) {
    const auto d = static_cast<size_t>(c.d), length = static_cast<size_t>(c.length);
    const auto n = static_cast<size_t>(c.n_rows);
    in = random_floats(n * 3 * d, 1);
    taps = random_floats(d * length, 2);
    bias = random_floats(d, 3);
    before = random_floats(d * (length - 1), 4);
    vectors[ShortConvMixer::kConv] = taps.data();
    if (c.bias) vectors[ShortConvMixer::kConvBias] = bias.data();
    next = define(true);
    first = define(false);
  }

  // y[t] = C[t] (b + sum over j of w[j] s[t - L + 1 + j]), token by token.
  MixerOutcome define(bool continues) const {
    const auto d = static_cast<size_t>(of.d), length = static_cast<size_t>(of.length);
    MixerOutcome out = {Floats(static_cast<size_t>(of.n_rows) * d), Floats(d * (length - 1))};
    for (size_t c = 0; c < d; ++c) {
      Floats s(length, 0.0f);
      for (size_t j = 1; j < length && continues; ++j) s[j] = before[(j - 1) * d + c];
      for (size_t t = 0; t < static_cast<size_t>(of.n_rows); ++t) {
        const float* const row = &in[t * 3 * d];
        s.erase(s.begin());
        s.push_back(row[c] * row[2 * d + c]);
        float sum = of.bias ? bias[c] : 0.0f;
        for (size_t j = 0; j < length; ++j) sum = std::fma(taps[c * length + j], s[j], sum);
        out.y[t * d + c] = row[d + c] * sum;
      }
      for (size_t j = 1; j < length; ++j) out.after[(j - 1) * d + c] = s[j];
    }
    return out;
  }

  // The last channel, from the row on: a convolution forgets.
  void spoil(int32_t row, float value) {
    for (int32_t r = row; r < of.n_rows; ++r) {
      in[static_cast<size_t>(r * 3 * of.d + of.d - 1)] = value;
    }
  }

  MixerArgs args() const {
    MixerArgs a;
    a.config.kind = MixerKind::kShortConv;
    a.config.params[0] = static_cast<float>(of.length);
    a.d_model = of.d;
    a.n_rows = of.n_rows;
    a.in = in.data();
    a.ld_in = 3 * of.d;
    a.ld_out = of.d;
    a.vectors = vectors;
    a.end = mixer_info(a.config).units(a.config, of.d);
    return a;
  }

  ShortConvCase of;
  Floats in, taps, bias, before;
  MixerOutcome first, next;
  const float* vectors[kMaxMixerWeights] = {};
};

class ShortConvTest : public testing::TestWithParam<ShortConvCase> {};

TEST_P(ShortConvTest, FollowsItsDefinition) { expect_definition(ShortConv(GetParam())); }
TEST_P(ShortConvTest, PartsAgreeWithTheWhole) { expect_parts_agree(ShortConv(GetParam())); }
TEST_P(ShortConvTest, NamesTheFirstRowThatIsNotFinite) {
  expect_first_bad_row(ShortConv(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ShortConvTest,
    testing::Values(ShortConvCase{1, 1, 1, false}, ShortConvCase{5, 3, 4, false},
                    ShortConvCase{16, 2, 9, true}, ShortConvCase{37, 4, 11, true},
                    ShortConvCase{48, 3, 1, true}, ShortConvCase{33, 64, 70, true},
                    ShortConvCase{20, 64, 3, false}));

TEST(Mixers, HaveNamesParametersAndShapes) {
  for (size_t m = 0; m < kMixers; ++m) {
    const MixerInfo& info = kMixerRows[m];
    EXPECT_EQ(find_mixer(info.name), &info);
    int n_out = 0;
    for (int w = 0; w < info.n_weights(); ++w) {
      const std::string name = info.weights[w].name;
      EXPECT_TRUE(name.starts_with(std::string(info.name) + ".")) << name;
      EXPECT_EQ(is_matrix(info.weights[w].use) && !name.ends_with(".weight"), false) << name;
      if (info.weights[w].use == MixerUse::kOut) ++n_out;
    }
    EXPECT_EQ(n_out, 1) << info.name;
    MixerConfig config = default_mixer(info);
    for (int i = 0; i < info.n_params(); ++i) config.params[i] = info.params[i].high;
    EXPECT_TRUE(validate_mixer(config).ok()) << info.name;
    EXPECT_GT(info.units(config, 64), 0);
    EXPECT_GT(info.work(config, 64), 0);
    EXPECT_GE(info.state(config, 64), 0);
    EXPECT_GT(mixer_widths(config, 64).in, 0);
  }
  EXPECT_EQ(find_mixer("attention"), nullptr);
}

TEST(Mixers, RangesOfParameters) {
  const auto error = [](float length) {
    MixerConfig config;
    config.kind = MixerKind::kShortConv;
    config.params[0] = length;
    return std::string(validate_mixer(config).text());
  };
  EXPECT_EQ(error(1), "");
  EXPECT_EQ(error(64), "");
  const std::string expected = "short_conv: length: expected a whole number in 1..64, found ";
  EXPECT_EQ(error(0), expected + "0");
  EXPECT_EQ(error(65), expected + "65");
  EXPECT_EQ(error(2.5f), expected + "2.5");
  EXPECT_EQ(error(-1), expected + "-1");
  EXPECT_NE(error(NAN), "");
  EXPECT_NE(error(INFINITY), "");
}

}  // namespace
}  // namespace moe
