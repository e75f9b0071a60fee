// SPDX-License-Identifier: MIT
// The gated delta rule and Kimi's against their definitions as plain loops, on every instruction
// set, in any parts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/mixers/table.h"
#include "src/base/inline.h"
#include "tests/kernels/mixer_checks.h"

namespace moe {
namespace {

struct DeltaCase {
  int32_t key_heads;
  int32_t value_heads;
  int32_t key_dim;
  int32_t value_dim;
  int32_t length;
  int32_t n_rows;
  float scale = 1;   // of the inputs
  int32_t rank = 0;  // of Kimi's rule; kInputs: its gates are inputs themselves; 0: the other rule
  float bound = 0;   // of Kimi's decays
};
constexpr int32_t kInputs = -1;

// Single numbers, odd sizes, whole vectors with and without remainders, more value heads than key
// heads, Qwen3-Next's heads, more tokens than go through the state at once.
const DeltaCase kDeltaCases[] = {
    {1, 1, 1, 1, 1, 1},          {1, 1, 5, 1, 2, 3},          {3, 3, 1, 7, 4, 9},
    {2, 6, 17, 15, 4, 17},       {1, 4, 16, 16, 3, 8},        {2, 2, 33, 33, 4, 11},
    {1, 3, 20, 100, 4, 25},      {2, 4, 128, 128, 4, 5},      {1, 2, 3, 129, 64, 70},
    {1, 1, 256, 256, 4, 2},      {1, 2, 8, 24, 3, 12, 1e15f}, {1, 2, 8, 24, 3, 12, 60},
    {1, 2, 8, 24, 3, 12, 1e-20f}};

// The same of Kimi's rule, with its published heads.
const DeltaCase kKimiCases[] = {
    {1, 1, 1, 1, 1, 1, 1, 1},     {1, 1, 5, 1, 2, 3, 1, 2},       {3, 3, 1, 7, 4, 9, 1, 17},
    {4, 4, 17, 15, 4, 17, 1, 3},  {4, 4, 16, 16, 3, 8, 1, 16},    {2, 2, 128, 128, 4, 5, 1, 128},
    {2, 2, 3, 129, 64, 70, 1, 5}, {1, 1, 256, 256, 4, 2, 1, 31},  {2, 2, 8, 24, 3, 12, 1e15f, 4},
    {2, 2, 8, 24, 3, 12, 60, 4},  {2, 2, 8, 24, 3, 12, 1e-20f, 4}};

// The same with gates that are inputs, or a bound, or both as in Ling 3.
const DeltaCase kBoundedCases[] = {
    {1, 1, 1, 1, 1, 1, 1, kInputs, -5},        {3, 3, 17, 15, 4, 17, 1, kInputs, -5},
    {2, 2, 128, 128, 4, 5, 1, kInputs, -5},    {2, 2, 5, 33, 3, 9, 1, kInputs},
    {2, 2, 16, 16, 2, 9, 1, 3, -0.5f},         {2, 2, 8, 24, 3, 12, 1e15f, kInputs, -5},
    {2, 2, 8, 24, 3, 12, 1e-20f, kInputs, -5}, {2, 2, 8, 24, 3, 12, 60, kInputs, -1e6f}};

/// A case with its numbers, and what is to come out, after a state and at the beginning of a text.
struct Delta {
  explicit Delta(const DeltaCase& c) : of(c), kimi(c.rank != 0), rank(std::max(c.rank, 0)) {
    const int32_t params[] = {c.key_heads, c.value_heads, c.key_dim, c.value_dim, c.length, rank};
    const int first_param = kimi ? 1 : 0;
    for (int i = 0; i < 5; ++i) config.params[i] = static_cast<float>(params[first_param + i]);
    if (kimi) {
      config.kind = MixerKind::kKimiDelta;
      config.params[KimiDeltaMixer::kEps] = 1e-6f;
      config.params[KimiDeltaMixer::kDecayBound] = c.bound;
      sizes = KimiDeltaMixer::sizes(config);
    } else {
      config.kind = MixerKind::kGatedDelta;
      config.params[GatedDeltaMixer::kEps] = 1e-6f;
      config.params[GatedDeltaMixer::kBetaScale] = c.length == 4 ? 2.0f : 1.0f;
      beta_scale = config.params[GatedDeltaMixer::kBetaScale];
      sizes = GatedDeltaMixer::sizes(config);
    }
    width = mixer_widths(config, 8).in + 3;  // more between rows than the mixer reads
    in = random_floats(size(c.n_rows * width), 1, c.scale);
    q_conv = random_floats(size(sizes.keys() * c.length), 2, 0.6f);
    k_conv = random_floats(size(sizes.keys() * c.length), 7, 0.6f);
    v_conv = random_floats(size(sizes.values() * c.length), 8, 0.6f);
    dt_bias = random_floats(size(kimi ? sizes.keys() : c.value_heads), 3);
    z_up = random_floats(size(rank * sizes.values()), 9, 0.6f);
    a_up = random_floats(size(rank * sizes.keys()), 10, 0.6f);
    a_log = random_floats(size(c.value_heads), 4, 2);
    norm = random_floats(size(c.value_dim), 5);
    before = random_floats(size(sizes.state()), 6, 0.5f);
    set_vectors();
    next = define(before.data());
    first = define(nullptr);
  }

  static size_t size(int64_t n) { return static_cast<size_t>(n); }

  void set_vectors() {
    if (!kimi) return set_common<GatedDeltaMixer>();
    set_common<KimiDeltaMixer>();
    if (rank == 0) return;
    vectors[KimiDeltaMixer::kZUp] = z_up.data();
    vectors[KimiDeltaMixer::kAUp] = a_up.data();
  }
  template <class Mixer>
  void set_common() {
    vectors[Mixer::kQConv] = q_conv.data();
    vectors[Mixer::kKConv] = k_conv.data();
    vectors[Mixer::kVConv] = v_conv.data();
    vectors[Mixer::kDtBias] = dt_bias.data();
    vectors[Mixer::kALog] = a_log.data();
    vectors[Mixer::kNorm] = norm.data();
  }

  // Columns of the inputs.
  int64_t z_at() const { return sizes.channels(); }
  int64_t b_at() const { return z_at() + (rank > 0 ? rank : sizes.values()); }
  int64_t a_at() const { return b_at() + of.value_heads; }

  // Output i of row t's product with `up` (rank, n) and the inputs from column `at` on, or the
  // input itself.
  float raised(const std::vector<float>& up, int64_t n, int32_t t, int64_t at, int64_t i) const {
    if (rank == 0) return in[size(t * width + at + i)];
    float sum = 0;
    for (int64_t j = 0; j < rank; ++j) {
      sum = __builtin_fmaf(in[size(t * width + at + j)], up[size(j * n + i)], sum);
    }
    return sum;
  }
  float decay(int64_t h, float a, float bias) const {
    if (of.bound < 0) {
      return exp_float(0 - -of.bound * sigmoid_float(exp_float(a_log[size(h)]) * (a + bias)));
    }
    return exp_float(0 - exp_float(a_log[size(h)]) * softplus_float(a + bias));
  }

  MixerArgs args() const {
    return {.config = config,
            .d_model = 8,
            .n_rows = of.n_rows,
            .in = in.data(),
            .ld_in = width,
            .ld_out = sizes.values(),
            .vectors = vectors,
            .end = of.value_heads};
  }

  // Sums of squares have the order of every other norm.
  static float squares(const float* x, int n) {
    const CpuKernels* const scalar = every_isa().back();
    return scalar->sum_squares(x, n);
  }
  static void to_unit(float* x, int n, float factor) {
    const float scale = factor / std::sqrt(squares(x, n) + 1e-6f);
    for (int i = 0; i < n; ++i) x[i] = x[i] * scale;
  }

  // Head by head: convolution, unit lengths, gates, the recurrence, gated norm.
  MixerOutcome define(const float* from) const {
    MixerOutcome out = {std::vector<float>(size(of.n_rows * sizes.values())),
                        std::vector<float>(size(sizes.state()))};
    const int64_t keys = sizes.keys();
    const Convolution parts[] = {convolution(q_conv, keys, 0, from),
                                 convolution(k_conv, keys, keys, from),
                                 convolution(v_conv, sizes.values(), 2 * keys, from)};
    for (int i = 0; i < 3; ++i) {
      parts[i].define_state(of.n_rows, out.after.data() + i * keys);
    }
    for (int64_t h = 0; h < of.value_heads; ++h) {
      define_head(parts, h, from, out.y.data(), out.after.data());
    }
    return out;
  }

  // The last value of the last head.
  void spoil(int32_t row, float value) { in[size(row * width + sizes.channels() - 1)] = value; }

  Convolution convolution(const std::vector<float>& weight, int64_t n, int64_t at,
                          const float* from) const {
    Convolution c;
    c.n_taps = of.length;
    c.n_channels = static_cast<int32_t>(n);
    c.weight = weight.data();
    c.in = in.data() + at;
    c.ld_in = width;
    c.from = from != nullptr ? from + at : nullptr;
    c.ld_state = sizes.channels();
    return c;
  }

  void define_head(const Convolution (&c)[3], int64_t h, const float* from, float* out,
                   float* state) const {
    const int32_t dk = of.key_dim, dv = of.value_dim, n = of.n_rows;
    const int64_t first_key = h / (of.value_heads / of.key_heads) * dk;
    std::vector<float> q(size(n * dk)), k(q), v(size(n * dv)), decays(size(n * dk)), rate(size(n));
    for (int32_t t = 0; t < n; ++t) {
      for (int32_t i = 0; i < dk; ++i) {
        q[size(t * dk + i)] = c[0].define(t, first_key + i);
        k[size(t * dk + i)] = c[1].define(t, first_key + i);
      }
      for (int32_t i = 0; i < dv; ++i) {
        v[size(t * dv + i)] = c[2].define(t, h * dv + i);
      }
      to_unit(&q[size(t * dk)], dk, 1 / std::sqrt(static_cast<float>(dk)));
      to_unit(&k[size(t * dk)], dk, 1);
      rate[size(t)] = beta_scale * sigmoid_float(in[size(t * width + b_at() + h)]);
      if (!kimi) {
        decays[size(t)] = decay(h, in[size(t * width + a_at() + h)], dt_bias[size(h)]);
        continue;
      }
      for (int64_t i = 0; i < dk; ++i) {
        const float a = raised(a_up, sizes.keys(), t, a_at(), h * dk + i);
        decays[size(t * dk + i)] = decay(h, a, dt_bias[size(h * dk + i)]);
      }
    }
    const int64_t matrix = sizes.history() + h * sizes.matrix();
    Recurrence r;
    r.n_rows = n;
    r.n_keys = r.ld_key = dk;
    r.n_values = r.ld_value = dv;
    r.delta = true;
    r.decay_by_key = kimi;
    r.key = k.data();
    r.query = q.data();
    r.value = v.data();
    r.decay = decays.data();
    r.rate = rate.data();
    r.from = from != nullptr ? from + matrix : nullptr;
    r.to = state + matrix;
    r.out = out + h * dv;
    r.ld_out = sizes.values();
    define_recurrence(r);
    for (int32_t t = 0; t < n; ++t) {
      float* o = out + t * sizes.values() + h * dv;
      const float scale = 1 / std::sqrt(squares(o, dv) / static_cast<float>(dv) + 1e-6f);
      for (int32_t i = 0; i < dv; ++i) {
        const float gate =
            kimi ? sigmoid_float(raised(z_up, sizes.values(), t, z_at(), h * dv + i))
                 : activations::silu<ScalarLanes>(in[size(t * width + z_at() + h * dv + i)], 1);
        o[i] = o[i] * scale * norm[size(i)] * gate;
      }
    }
  }

  DeltaCase of;
  bool kimi;
  int32_t rank;  // 0: the gates are inputs
  MixerConfig config;
  DeltaSizes sizes;
  int64_t width = 0;
  float beta_scale = 1;
  std::vector<float> in, q_conv, k_conv, v_conv, dt_bias, a_log, norm, before, z_up, a_up;
  MixerOutcome first, next;
  const float* vectors[kMaxMixerWeights] = {};
};

class DeltaRuleTest : public testing::TestWithParam<DeltaCase> {};

TEST_P(DeltaRuleTest, FollowsItsDefinition) { expect_definition(Delta(GetParam())); }
TEST_P(DeltaRuleTest, PartsAgreeWithTheWhole) { expect_parts_agree(Delta(GetParam())); }
TEST_P(DeltaRuleTest, NamesTheFirstRowThatIsNotFinite) { expect_first_bad_row(Delta(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaRuleTest, testing::ValuesIn(kDeltaCases));
INSTANTIATE_TEST_SUITE_P(Kimi, DeltaRuleTest, testing::ValuesIn(kKimiCases));
INSTANTIATE_TEST_SUITE_P(Bounded, DeltaRuleTest, testing::ValuesIn(kBoundedCases));

// Inputs of gates that overflow: the state is kept or forgotten, and stays finite.
TEST(DeltaRule, ExtremeGatesLeaveAFiniteState) {
  const float extremes[] = {0, 3e38f, -3e38f, INFINITY, -INFINITY, 88.8f, -104, 1e-40f};
  Delta delta({1, 2, 9, 21, 3, 20});
  unsigned i = 0;
  for (int32_t t = 0; t < delta.of.n_rows; ++t) {
    float* gates = &delta.in[Delta::size(t * delta.width + delta.b_at())];
    for (int g = 0; g < 4; ++g) gates[g] = extremes[i++ * 5 / 3 % std::size(extremes)];
  }
  delta.first = delta.define(nullptr);
  delta.next = delta.define(delta.before.data());
  for (const float v : delta.next.after) ASSERT_TRUE(is_finite(v));
  expect_definition(delta);
}

// A bound keeps the smallest decay, and any input gives one: e^-bound to 1.
TEST(DeltaRule, BoundedGatesLeaveAFiniteState) {
  const float extremes[] = {0, 3e38f, -3e38f, INFINITY, -INFINITY, 88.8f, -104, 1e-40f};
  Delta delta({2, 2, 9, 21, 3, 20, 1, kInputs, -5});
  unsigned i = 0;
  for (int32_t t = 0; t < delta.of.n_rows; ++t) {
    float* row = &delta.in[Delta::size(t * delta.width)];
    for (int64_t k = 0; k < delta.sizes.keys(); ++k) {
      row[delta.a_at() + k] = extremes[i++ * 5 / 3 % std::size(extremes)];
    }
  }
  delta.first = delta.define(nullptr);
  delta.next = delta.define(delta.before.data());
  for (const float v : delta.next.after) ASSERT_TRUE(is_finite(v));
  expect_definition(delta);
}

// The same of Kimi's rule, with finite inputs: their products overflow.
TEST(DeltaRule, KimisGatesThatOverflowLeaveAFiniteState) {
  const float extremes[] = {0, 3e38f, -3e38f, 88.8f, -104, 1e-40f};
  Delta delta({2, 2, 9, 21, 3, 20, 1, 1});
  unsigned i = 0;
  for (int32_t t = 0; t < delta.of.n_rows; ++t) {
    float* row = &delta.in[Delta::size(t * delta.width)];
    row[delta.a_at()] = extremes[i++ * 5 / 3 % std::size(extremes)];
    row[delta.b_at()] = extremes[i++ * 5 / 3 % std::size(extremes)];
  }
  for (float& weight : delta.a_up) weight *= 8;
  delta.first = delta.define(nullptr);
  delta.next = delta.define(delta.before.data());
  for (const float v : delta.next.after) ASSERT_TRUE(is_finite(v));
  expect_definition(delta);
}

TEST(DeltaRule, RefusesHeadsThatDoNotFit) {
  MixerConfig config;
  config.kind = MixerKind::kGatedDelta;
  const float params[] = {4, 6, 16, 16, 4, 1e-6f, 1};
  std::copy(std::begin(params), std::end(params), config.params);
  const Status status = validate_mixer(config);
  EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT);
  EXPECT_STREQ(status.text(), "gated_delta: value_heads is not a multiple of key_heads");
  config.params[1] = 8;
  EXPECT_TRUE(validate_mixer(config).ok());
  config.params[2] = 257;
  EXPECT_STREQ(validate_mixer(config).text(),
               "gated_delta: key_dim: expected a whole number in 1..256, found 257");
}

}  // namespace
}  // namespace moe
