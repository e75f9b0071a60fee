// SPDX-License-Identifier: MIT
// Mamba2 against its definition as plain loops, on every instruction set, in any parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/mixers/table.h"
#include "src/base/inline.h"
#include "tests/kernels/mixer_checks.h"

namespace moe {
namespace {

struct MambaCase {
  int32_t heads;
  int32_t head_dim;
  int32_t groups;
  int32_t state_dim;
  int32_t length;
  int32_t n_rows;
  float scale = 1;  // of the inputs
  bool normed = true;
};

// Single numbers, odd sizes, whole vectors and remainders, several heads to a group, the heads of
// Granite 4 H, more tokens than go through the state at once, no norm.
const MambaCase kMambaCases[] = {
    {1, 1, 1, 1, 1, 1},           {2, 5, 1, 3, 2, 9},           {6, 17, 3, 15, 4, 17},
    {4, 16, 4, 16, 3, 8},         {3, 100, 1, 20, 4, 25},       {4, 64, 1, 128, 4, 5},
    {2, 129, 2, 3, 64, 70},       {1, 256, 1, 256, 4, 2},       {2, 24, 1, 8, 3, 12, 60},
    {2, 24, 1, 8, 3, 12, 1e-20f}, {3, 21, 3, 7, 3, 9, 1, false}};

/// A case with its numbers, and what is to come out.
struct Mamba {
  explicit Mamba(const MambaCase& c) : of(c) {
    config = default_mixer(mixer_info(MixerKind::kMamba2));
    const int32_t params[] = {c.heads, c.head_dim, c.groups, c.state_dim, c.length};
    for (int i = 0; i < 5; ++i) config.params[i] = static_cast<float>(params[i]);
    sizes = Mamba2Mixer::sizes(config);
    width = sizes.in() + 3;  // more between rows than the mixer reads
    in = random_floats(size(c.n_rows * width), 1, c.scale);
    conv = random_floats(size(sizes.channels() * c.length), 2, 0.6f);
    conv_bias = random_floats(size(sizes.channels()), 3, 0.3f);
    dt_bias = random_floats(size(c.heads), 4);
    a_log = random_floats(size(c.heads), 5);
    d = random_floats(size(c.heads), 6);
    norm = random_floats(size(sizes.inner()), 7);
    before = random_floats(size(sizes.state()), 8, 0.5f);
    vectors[Mamba2Mixer::kConv] = conv.data();
    vectors[Mamba2Mixer::kConvBias] = c.length == 4 ? nullptr : conv_bias.data();
    vectors[Mamba2Mixer::kDtBias] = dt_bias.data();
    vectors[Mamba2Mixer::kALog] = a_log.data();
    vectors[Mamba2Mixer::kD] = d.data();
    vectors[Mamba2Mixer::kNorm] = c.normed ? norm.data() : nullptr;
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
            .ld_out = sizes.inner(),
            .vectors = vectors,
            .end = of.heads};
  }

  // Head by head the convolution, the step and the recurrence; then gate and norm of the groups.
  MixerOutcome define(const float* from) const {
    MixerOutcome out = {std::vector<float>(size(of.n_rows * sizes.inner())),
                        std::vector<float>(size(sizes.state()))};
    Convolution c;
    c.n_taps = of.length;
    c.n_channels = static_cast<int32_t>(sizes.channels());
    c.weight = conv.data();
    c.bias = vectors[Mamba2Mixer::kConvBias];
    c.in = in.data() + sizes.inner();
    c.ld_in = width;
    c.from = from;
    c.ld_state = sizes.channels();
    c.define_state(of.n_rows, out.after.data());
    for (int64_t h = 0; h < of.heads; ++h) define_head(c, h, from, out.y.data(), out.after.data());
    const int64_t n = sizes.inner() / of.groups;
    for (int64_t g = 0; g < of.n_rows * of.groups; ++g) {
      float* o = out.y.data() + g * n;
      const float* z = &in[size(g / of.groups * width + g % of.groups * n)];
      for (int64_t i = 0; i < n; ++i) o[i] = o[i] * activations::silu<ScalarLanes>(z[i], 1);
      if (!of.normed) continue;
      const float squares = every_isa().back()->sum_squares(o, static_cast<int>(n));
      const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + 1e-5f);
      for (int64_t i = 0; i < n; ++i) o[i] = o[i] * scale * norm[size(g % of.groups * n + i)];
    }
    return out;
  }

  // The last value of the last head.
  void spoil(int32_t row, float value) { in[size(row * width + 2 * sizes.inner() - 1)] = value; }

  void define_head(const Convolution& c, int64_t h, const float* from, float* out,
                   float* state) const {
    const int32_t dk = of.state_dim, dv = of.head_dim, n = of.n_rows;
    const int64_t b = sizes.inner() + h / (of.heads / of.groups) * dk;
    std::vector<float> key(size(n * dk)), query(key), v(size(n * dv)), decay(size(n)), rate(decay);
    for (int32_t t = 0; t < n; ++t) {
      for (int32_t i = 0; i < dk; ++i) {
        key[size(t * dk + i)] = c.define(t, b + i);
        query[size(t * dk + i)] = c.define(t, b + int64_t{of.groups} * dk + i);
      }
      for (int32_t i = 0; i < dv; ++i) v[size(t * dv + i)] = c.define(t, h * dv + i);
      const float dt = in[size(t * width + sizes.inner() + sizes.channels() + h)];
      rate[size(t)] = softplus_float(dt + dt_bias[size(h)]);
      decay[size(t)] = exp_float(0 - exp_float(a_log[size(h)]) * rate[size(t)]);
    }
    const int64_t matrix = sizes.history() + h * sizes.matrix();
    Recurrence r;
    r.n_rows = n;
    r.n_keys = dk;
    r.ld_key = dk;
    r.n_values = dv;
    r.ld_value = dv;
    r.key = key.data();
    r.query = query.data();
    r.value = v.data();
    r.decay = decay.data();
    r.rate = rate.data();
    r.skip = &d[size(h)];
    r.from = from != nullptr ? from + matrix : nullptr;
    r.to = state + matrix;
    r.out = out + h * dv;
    r.ld_out = sizes.inner();
    define_recurrence(r);
  }

  MambaCase of;
  MixerConfig config;
  Mamba2Sizes sizes;
  int64_t width = 0;
  std::vector<float> in, conv, conv_bias, dt_bias, a_log, d, norm, before;
  MixerOutcome first, next;
  const float* vectors[kMaxMixerWeights] = {};
};

class Mamba2Test : public testing::TestWithParam<MambaCase> {};

TEST_P(Mamba2Test, FollowsItsDefinition) { expect_definition(Mamba(GetParam())); }
TEST_P(Mamba2Test, PartsAgreeWithTheWhole) { expect_parts_agree(Mamba(GetParam())); }
TEST_P(Mamba2Test, NamesTheFirstRowThatIsNotFinite) { expect_first_bad_row(Mamba(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Shapes, Mamba2Test, testing::ValuesIn(kMambaCases));

// A step that overflows adds more than a float holds: it is reported, unless a limit cuts it.
TEST(Mamba2, StepsThatOverflow) {
  const MambaCase shape{1, 4, 1, 3, 2, 4};
  for (const float step : {3e38f, INFINITY}) {
    for (const bool limited : {false, true}) {
      Mamba mamba(shape);
      if (limited) mamba.config.params[Mamba2Mixer::kDtHigh] = 10;
      mamba.in[Mamba::size(2 * mamba.width + mamba.sizes.in() - 1)] = step;
      mamba.in[Mamba::size(2 * mamba.width + mamba.sizes.inner())] = 1e20f;     // x
      mamba.in[Mamba::size(2 * mamba.width + 2 * mamba.sizes.inner())] = 1e3f;  // B
      for (const CpuKernels* kernels : every_isa()) {
        int32_t bad = 0;
        (void)run_mixer(*kernels, mamba.args(), mamba.first, &bad);
        EXPECT_EQ(bad, limited ? kMixerFinite : 2) << kernels->name;
      }
    }
  }
}

TEST(Mamba2, RefusesHeadsAndStepsThatDoNotFit) {
  MixerConfig config = default_mixer(mixer_info(MixerKind::kMamba2));
  const float params[] = {6, 16, 4, 16, 4};
  std::copy(std::begin(params), std::end(params), config.params);
  EXPECT_STREQ(validate_mixer(config).text(), "mamba2: heads is not a multiple of groups");
  config.params[Mamba2Mixer::kGroups] = 3;
  EXPECT_TRUE(validate_mixer(config).ok()) << validate_mixer(config).text();
  config.params[Mamba2Mixer::kDtLow] = 1;
  config.params[Mamba2Mixer::kDtHigh] = 0.5f;
  EXPECT_STREQ(validate_mixer(config).text(), "mamba2: dt_low is above dt_high");
}

}  // namespace
}  // namespace moe
