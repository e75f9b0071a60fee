// SPDX-License-Identifier: MIT
// Lightning attention against its definition as plain loops, on every instruction set, in any
// parts.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/mixers/table.h"
#include "src/base/inline.h"
#include "tests/kernels/mixer_checks.h"

namespace moe {
namespace {

struct LightningCase {
  int32_t heads;
  int32_t head_dim;
  int32_t n_rows;
  float scale = 1;  // of the inputs
};

// Single numbers, odd sizes, whole vectors and remainders, MiniMax's heads, more tokens than go
// through the state at once, inputs whose activations overflow to 0 and underflow.
const LightningCase kLightningCases[] = {
    {1, 1, 1},    {3, 5, 9},   {2, 17, 17},  {4, 16, 8},      {2, 33, 11},        {2, 128, 5},
    {3, 129, 70}, {1, 256, 2}, {2, 8, 1000}, {2, 24, 12, 60}, {2, 24, 12, 1e-20f}};

/// A case with its numbers, and what is to come out.
struct Lightning {
  explicit Lightning(const LightningCase& c) : of(c), inner(c.heads * c.head_dim) {
    config = default_mixer(mixer_info(MixerKind::kLightning));
    config.params[LightningMixer::kHeads] = static_cast<float>(c.heads);
    config.params[LightningMixer::kHeadDim] = static_cast<float>(c.head_dim);
    width = 4 * inner + 3;  // more between rows than the mixer reads
    in = random_floats(size(c.n_rows * width), 1, c.scale);
    norm = random_floats(size(inner), 2);
    before = random_floats(size(inner * c.head_dim), 3, 0.5f);
    a_log = random_floats(size(c.heads), 4, 2);
    vectors[LightningMixer::kALog] = a_log.data();
    vectors[LightningMixer::kNorm] = norm.data();
    next = define(before.data());
    first = define(nullptr);
  }

  static size_t size(int64_t n) { return static_cast<size_t>(n); }

  MixerArgs args() const {
    return {.config = config,
            .d_model = 8,
            .n_rows = of.n_rows,
            .in = in.data(),
            .ld_in = width,
            .ld_out = inner,
            .vectors = vectors,
            .end = of.heads};
  }

  // The last value of the last head.
  void spoil(int32_t row, float value) { in[size(row * width + 3 * inner - 1)] = value; }

  float silu(int32_t t, int64_t column) const {
    return activations::silu<ScalarLanes>(in[size(t * width + column)], 1);
  }

  // Token by token, S = decay S + k v^T and o = S^T q: sums over ascending keys from 0. Then the
  // norm over all heads, and the gate.
  MixerOutcome define(const float* from) const {
    const int64_t d = of.head_dim;
    MixerOutcome out = {std::vector<float>(size(of.n_rows * inner)),
                        std::vector<float>(size(inner * d))};
    for (size_t i = 0; i < out.after.size(); ++i) out.after[i] = from != nullptr ? from[i] : 0.0f;
    for (int32_t t = 0; t < of.n_rows; ++t) {
      float* const o = out.y.data() + t * inner;
      for (int64_t h = 0; h < of.heads; ++h) {
        const float decay = exp_float(0 - exp_float(a_log[size(h)]));
        for (int64_t c = 0; c < d; ++c) {
          float sum = 0;
          for (int64_t k = 0; k < d; ++k) {
            float& s = out.after[size((h * d + k) * d + c)];
            const float v = silu(t, 2 * inner + h * d + c);
            s = std::fma(silu(t, inner + h * d + k), v, decay * s);
            sum = std::fma(silu(t, h * d + k), s, sum);
          }
          o[h * d + c] = sum;
        }
      }
      const float squares = every_isa().back()->sum_squares(o, static_cast<int>(inner));
      const float scale = 1 / std::sqrt(squares / static_cast<float>(inner) + 1e-6f);
      for (int64_t i = 0; i < inner; ++i) {
        o[i] = o[i] * scale * norm[size(i)] * sigmoid_float(in[size(t * width + 3 * inner + i)]);
      }
    }
    return out;
  }

  LightningCase of;
  int64_t inner;
  MixerConfig config;
  int64_t width = 0;
  std::vector<float> in, norm, before, a_log;
  MixerOutcome first, next;
  const float* vectors[kMaxMixerWeights] = {};
};

class LightningTest : public testing::TestWithParam<LightningCase> {};

TEST_P(LightningTest, FollowsItsDefinition) { expect_definition(Lightning(GetParam())); }
TEST_P(LightningTest, PartsAgreeWithTheWhole) { expect_parts_agree(Lightning(GetParam())); }
TEST_P(LightningTest, NamesTheFirstRowThatIsNotFinite) {
  expect_first_bad_row(Lightning(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Shapes, LightningTest, testing::ValuesIn(kLightningCases));

// The fastest rate forgets all, the slowest keeps all.
TEST(Lightning, RatesOfAnySize) {
  for (const float a_log : {-INFINITY, -3e38f, -90.0f, 5.0f, 90.0f, INFINITY}) {
    Lightning lightning({2, 9, 20});
    lightning.a_log[0] = a_log;
    lightning.next = lightning.define(lightning.before.data());
    lightning.first = lightning.define(nullptr);
    for (const float v : lightning.next.after) ASSERT_TRUE(is_finite(v));
    expect_definition(lightning);
  }
}

TEST(Lightning, RangesOfParameters) {
  MixerConfig config = default_mixer(mixer_info(MixerKind::kLightning));
  config.params[LightningMixer::kHeads] = 64;
  config.params[LightningMixer::kHeadDim] = 128;
  EXPECT_TRUE(validate_mixer(config).ok());
  config.params[LightningMixer::kHeadDim] = 257;
  EXPECT_STREQ(validate_mixer(config).text(),
               "lightning: head_dim: expected a whole number in 1..256, found 257");
  config.params[LightningMixer::kHeadDim] = 0;
  EXPECT_EQ(validate_mixer(config).code(), MOE_ERR_RANGE);
  config.params[LightningMixer::kHeadDim] = 128;
  config.params[LightningMixer::kHeads] = 1025;
  EXPECT_STREQ(validate_mixer(config).text(),
               "lightning: heads: expected a whole number in 1..1024, found 1025");
}

}  // namespace
}  // namespace moe
