// SPDX-License-Identifier: MIT
#include "src/run/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/device_cpu.h"
#include "tests/run/hook_device.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::mt19937& rng, size_t n, float deviation) {
  std::normal_distribution<float> normal(0, deviation);
  Floats v(n);
  for (float& x : v) x = normal(rng);
  return v;
}

/// Random weights of a layer, and the spec that points to them.
struct RandomLayer {
  static constexpr int32_t kModel = 48;
  static constexpr int32_t kInner = 40;
  static constexpr int32_t kExperts = 6;
  static constexpr int32_t kSharedInner = 24;

  explicit RandomLayer(int32_t n_subheads = 1, bool gated = true, bool shared = false) {
    const int32_t d_in = kModel / n_subheads;
    experts.resize(kExperts);
    for (ExpertWeights& e : experts) e = expert(d_in, kInner, gated);
    spec.d_model = kModel;
    spec.d_ff = kInner;
    spec.n_experts = kExperts;
    spec.n_subheads = n_subheads;
    spec.max_rows = 16;
    spec.router.k = 2;
    spec.experts = {experts.data(), experts.size()};
    spec.router_weight = make(kExperts * d_in);
    spec.router_bias = make(kExperts);
    if (n_subheads > 1) {
      spec.head = make(kModel * kModel);
      spec.head_bias = make(kModel);
      spec.merge = make(kModel * kModel);
      spec.merge_bias = make(kModel);
    }
    if (shared) {
      spec.shared_d_ff = kSharedInner;
      spec.shared = expert(kModel, kSharedInner, gated);
      spec.shared_gate = make(kModel);
    }
  }
  RandomLayer(const RandomLayer&) = delete;

  const float* make(int32_t n) {
    memory.push_back(random_floats(rng, static_cast<size_t>(n), 0.3f));
    return memory.back().data();
  }
  ExpertWeights expert(int32_t d_in, int32_t d_ff, bool gated) {
    ExpertWeights e;
    if (gated) e.gate = make(d_ff * d_in);
    e.up = make(d_ff * d_in);
    e.down = make(d_in * d_ff);
    if (gated) e.gate_bias = make(d_ff);
    e.up_bias = make(d_ff);
    e.down_bias = make(d_in);
    return e;
  }

  std::mt19937 rng{11};
  std::vector<Floats> memory;  // moving the outer vector keeps the inner ones in place
  std::vector<ExpertWeights> experts;
  LayerSpec spec;
};

// The same layer in double precision, by definition.
using Doubles = std::vector<double>;

Doubles affine(const float* w, const float* bias, const double* x, int32_t rows, int32_t cols) {
  Doubles y(static_cast<size_t>(rows));
  for (int32_t r = 0; r < rows; ++r) {
    double sum = bias != nullptr ? static_cast<double>(bias[r]) : 0;
    for (int32_t c = 0; c < cols; ++c) sum += static_cast<double>(w[r * cols + c]) * x[c];
    y[static_cast<size_t>(r)] = sum;
  }
  return y;
}

double silu(double v) { return v / (1 + std::exp(-v)); }

Doubles ffn(const ExpertWeights& e, const double* x, int32_t d_in, int32_t d_ff) {
  Doubles inner = affine(e.up, e.up_bias, x, d_ff, d_in);
  if (e.gate != nullptr) {
    const Doubles gate = affine(e.gate, e.gate_bias, x, d_ff, d_in);
    for (size_t i = 0; i < inner.size(); ++i) inner[i] *= silu(gate[i]);
  } else {
    for (double& v : inner) v = silu(v);
  }
  return affine(e.down, e.down_bias, inner.data(), d_in, d_ff);
}

// y += the mixture of the softmax router's top-k experts for one (sub-)token.
void mix(const LayerSpec& spec, const double* x, int32_t d_in, double* y) {
  const Doubles s = affine(spec.router_weight, spec.router_bias, x, spec.n_experts, d_in);
  double sum = 0;
  for (const double v : s) sum += std::exp(v);
  for (int32_t e = 0; e < spec.n_experts; ++e) {
    int rank = 0;
    for (const double v : s) rank += v > s[static_cast<size_t>(e)] ? 1 : 0;
    if (rank >= spec.router.k) continue;
    const double weight = std::exp(s[static_cast<size_t>(e)]) / sum;
    const Doubles out = ffn(spec.experts[static_cast<size_t>(e)], x, d_in, spec.d_ff);
    for (int32_t i = 0; i < d_in; ++i) y[i] += weight * out[static_cast<size_t>(i)];
  }
}

Doubles reference(const LayerSpec& spec, const float* x_float) {
  const int32_t d = spec.d_model;
  const Doubles x(x_float, x_float + d);
  const Doubles u = spec.head != nullptr ? affine(spec.head, spec.head_bias, x.data(), d, d) : x;
  Doubles y(static_cast<size_t>(d));
  const int32_t d_in = d / spec.n_subheads;
  for (int32_t h = 0; h < spec.n_subheads; ++h)
    mix(spec, &u[static_cast<size_t>(h * d_in)], d_in, &y[static_cast<size_t>(h * d_in)]);
  if (spec.merge != nullptr) y = affine(spec.merge, spec.merge_bias, y.data(), d, d);
  if (spec.shared_d_ff > 0) {
    const double gate = 1 / (1 + std::exp(-affine(spec.shared_gate, nullptr, x.data(), 1, d)[0]));
    const Doubles s = ffn(spec.shared, x.data(), d, spec.shared_d_ff);
    for (size_t i = 0; i < y.size(); ++i) y[i] += gate * s[i];
  }
  return y;
}

class LayerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(pool_.start(2).ok());
    auto device = open_cpu_device(nullptr, pool_, system_allocator(), 1);
    ASSERT_TRUE(device.ok()) << device.status().text();
    device_ = device.value();
  }
  void TearDown() override {
    layer_.reset();
    close_cpu_device(device_);
  }

  Status create(const LayerSpec& spec) {
    layer_.reset();
    auto layer = MoeLayer::create(*device_, spec, system_allocator());
    if (!layer.ok()) return layer.status();
    layer_ = std::move(layer.value());
    return {};
  }
  Floats forward(const Floats& x) {
    Floats y(x.size());
    const Status s = layer_->forward({x.data(), x.size()}, nullptr, y.data());
    EXPECT_TRUE(s.ok()) << s.text();
    return y;
  }
  // The largest error relative to the largest value of the reference.
  double error_of(const LayerSpec& spec, const Floats& x) {
    const Floats y = forward(x);
    const size_t d = static_cast<size_t>(spec.d_model);
    double error = 0;
    double largest = 0;
    for (size_t r = 0; r * d < x.size(); ++r) {
      const Doubles expected = reference(spec, &x[r * d]);
      for (size_t i = 0; i < d; ++i) {
        error = std::max(error, std::abs(expected[i] - static_cast<double>(y[r * d + i])));
        largest = std::max(largest, std::abs(expected[i]));
      }
    }
    return error / largest;
  }
  Floats input(size_t rows) {
    std::mt19937 rng(5);
    return random_floats(rng, rows * RandomLayer::kModel, 1);
  }

  ThreadPool pool_{system_allocator()};
  Device* device_ = nullptr;
  Box<MoeLayer> layer_;
};

TEST_F(LayerTest, EqualsTheDefinition) {
  for (const int32_t subheads : {1, 3}) {
    for (const bool gated : {false, true}) {
      for (const bool shared : {false, true}) {
        const RandomLayer weights(subheads, gated, shared);
        const Status s = create(weights.spec);
        ASSERT_TRUE(s.ok()) << s.text();
        EXPECT_LT(error_of(weights.spec, input(9)), 1e-5) << subheads << gated << shared;
      }
    }
  }
}

TEST_F(LayerTest, QuantisedFormatsComeClose) {
  RandomLayer weights;
  const struct {
    FormatId format;
    ActPrecision act;
    double bound;
  } cases[] = {{FormatId::kBf16, ActPrecision::kF32, 0.02},
               {FormatId::kF16, ActPrecision::kF32, 0.003},
               {FormatId::kInt8, ActPrecision::kF32, 0.03},
               {FormatId::kInt8, ActPrecision::kA8, 0.05},
               {FormatId::kInt8, ActPrecision::kA8Block, 0.05},
               {FormatId::kInt8Group, ActPrecision::kA8Block, 0.05},
               {FormatId::kInt8Group, ActPrecision::kA8Group, 0.03}};
  for (const auto& c : cases) {
    weights.spec.format = c.format;
    weights.spec.precision = c.act;
    const Status s = create(weights.spec);
    ASSERT_TRUE(s.ok()) << s.text();
    EXPECT_LT(error_of(weights.spec, input(9)), c.bound);
  }
}

TEST_F(LayerTest, BothTernaryFormatsAgreeToTheBit) {
  RandomLayer weights(3);
  weights.spec.precision = ActPrecision::kA8;
  weights.spec.format = FormatId::kTernary2;
  ASSERT_TRUE(create(weights.spec).ok());
  const Floats a = forward(input(9));
  weights.spec.format = FormatId::kTernary3;
  ASSERT_TRUE(create(weights.spec).ok());
  EXPECT_EQ(a, forward(input(9)));
}

TEST_F(LayerTest, TheCutOfTheRowsDoesNotMatter) {
  const RandomLayer weights(3, true, true);
  ASSERT_TRUE(create(weights.spec).ok());
  const Floats x = input(37);  // max_rows is 16
  const Floats whole = forward(x);
  Floats cut;
  for (size_t r = 0; r < 37; ++r) {
    const auto from = x.begin() + static_cast<std::ptrdiff_t>(r * RandomLayer::kModel);
    const Floats y = forward(Floats(from, from + RandomLayer::kModel));
    cut.insert(cut.end(), y.begin(), y.end());
  }
  EXPECT_EQ(whole, cut);
}

TEST_F(LayerTest, InputAndOutputMayBeTheSame) {
  const RandomLayer weights;
  ASSERT_TRUE(create(weights.spec).ok());
  Floats x = input(20);
  const Floats y = forward(x);
  ASSERT_TRUE(layer_->forward({x.data(), x.size()}, nullptr, x.data()).ok());
  EXPECT_EQ(x, y);
}

TEST_F(LayerTest, ReportsItsRouting) {
  const RandomLayer weights(3);
  ASSERT_TRUE(create(weights.spec).ok());
  const Floats x = input(20);
  Floats y(x.size());
  const size_t tokens = 20 * 3;
  std::vector<int32_t> expert(tokens * 2, -1);
  std::vector<int32_t> count(tokens, -1);
  Floats weight(tokens * 2, -1);
  LayerRouting routing;
  routing.expert = expert.data();
  routing.weight = weight.data();
  routing.count = count.data();
  ASSERT_TRUE(layer_->forward({x.data(), x.size()}, nullptr, y.data(), &routing).ok());
  EXPECT_EQ(layer_->max_routed(), 2);
  for (size_t t = 0; t < tokens; ++t) {
    EXPECT_EQ(count[t], 2);
    EXPECT_NE(expert[2 * t], expert[2 * t + 1]);
    EXPECT_GE(weight[2 * t], weight[2 * t + 1]);
    EXPECT_GT(weight[2 * t + 1], 0);
  }
}

TEST_F(LayerTest, HashRouterFollowsItsTable) {
  RandomLayer weights;
  const int32_t table[] = {4, 0, 4};
  weights.spec.router.kind = RouterKind::kHash;
  weights.spec.router_weight = nullptr;
  weights.spec.router_bias = nullptr;
  weights.spec.router_table = table;
  weights.spec.vocab_size = 3;
  const Status s = create(weights.spec);
  ASSERT_TRUE(s.ok()) << s.text();
  const Floats x = input(3);
  Floats y(x.size());
  EXPECT_EQ(layer_->forward({x.data(), x.size()}, nullptr, y.data()).code(), MOE_ERR_ARGUMENT);
  const int32_t bad[] = {0, 1, 3};
  EXPECT_EQ(layer_->forward({x.data(), x.size()}, bad, y.data()).code(), MOE_ERR_RANGE);
  const int32_t tokens[] = {2, 1, 0};
  ASSERT_TRUE(layer_->forward({x.data(), x.size()}, tokens, y.data()).ok());
  const int32_t expected[] = {4, 0, 4};
  for (size_t r = 0; r < 3; ++r) {
    const Doubles row(&x[r * RandomLayer::kModel],
                      &x[r * RandomLayer::kModel] + RandomLayer::kModel);
    const Doubles e = ffn(weights.spec.experts[static_cast<size_t>(expected[r])], row.data(),
                          RandomLayer::kModel, RandomLayer::kInner);
    for (size_t i = 0; i < e.size(); ++i) {
      EXPECT_NEAR(y[r * RandomLayer::kModel + i], e[i], 1e-4);
    }
  }
}

TEST_F(LayerTest, BadInputIsNamedAndWritesNothing) {
  const RandomLayer weights;
  ASSERT_TRUE(create(weights.spec).ok());
  Floats x = input(2);
  Floats y(x.size(), 7);
  x[50] = std::nanf("");
  Status s = layer_->forward({x.data(), x.size()}, nullptr, y.data());
  EXPECT_EQ(s.code(), MOE_ERR_NON_FINITE);
  EXPECT_NE(std::strstr(s.text(), "x[1][2]"), nullptr) << s.text();
  s = layer_->forward({x.data(), x.size() - 1}, nullptr, y.data());
  EXPECT_EQ(s.code(), MOE_ERR_SHAPE);
  EXPECT_EQ(y, Floats(x.size(), 7));
  EXPECT_TRUE(layer_->forward({}, nullptr, nullptr).ok());
}

TEST_F(LayerTest, ACapacityAllowsOneChunkOnly) {
  RandomLayer weights;
  weights.spec.router.gamma = 1;
  ASSERT_TRUE(create(weights.spec).ok());
  const Floats x = input(17);
  Floats y(x.size());
  EXPECT_EQ(layer_->forward({x.data(), x.size()}, nullptr, y.data()).code(), MOE_ERR_TOO_LONG);
}

TEST_F(LayerTest, ASecondThreadIsRefused) {
  HookDevice hooked(*device_);
  const RandomLayer weights;
  auto layer = MoeLayer::create(hooked, weights.spec, system_allocator());
  ASSERT_TRUE(layer.ok());
  const Floats x = input(1);
  Floats y(x.size());
  moe_status inner = MOE_OK;
  hooked.arm([&](int, Stream&) {
    inner = layer.value()->forward({x.data(), x.size()}, nullptr, y.data()).code();
  });
  EXPECT_TRUE(layer.value()->forward({x.data(), x.size()}, nullptr, y.data()).ok());
  EXPECT_EQ(inner, MOE_ERR_STATE);
}

TEST_F(LayerTest, EveryFailedAllocationIsAStatus) {
  const RandomLayer weights(3, true, true);
  const Floats x = input(20);
  const size_t failures = try_every_allocation_failure([&](const Allocator& memory) {
    auto device = open_cpu_device(nullptr, pool_, memory);
    if (!device.ok()) return device.status().code();
    moe_status code;
    {
      auto layer = MoeLayer::create(*device.value(), weights.spec, memory);
      code = layer.status().code();
      Floats y(x.size());
      if (layer.ok()) code = layer.value()->forward({x.data(), x.size()}, nullptr, y.data()).code();
    }
    close_cpu_device(device.value());
    return code;
  });
  EXPECT_GT(failures, 5u);
}

struct Refusal {
  const char* name;
  moe_status code;
  std::function<void(LayerSpec&, ExpertWeights*)> change;
};

TEST_F(LayerTest, BadSpecsAreRefused) {
  static Floats with_nan(RandomLayer::kModel * RandomLayer::kModel, 0.1f);
  with_nan[100] = std::nanf("");
  static const int32_t bad_table[] = {0, 6};
  using S = LayerSpec;
  using E = ExpertWeights;
  const Refusal refusals[] = {
      {"d_model 0", MOE_ERR_RANGE, [](S& s, E*) { s.d_model = 0; }},
      {"d_model negative", MOE_ERR_RANGE, [](S& s, E*) { s.d_model = -48; }},
      {"d_ff huge", MOE_ERR_RANGE, [](S& s, E*) { s.d_ff = 1 << 30; }},
      {"no experts", MOE_ERR_RANGE, [](S& s, E*) { s.n_experts = 0; }},
      {"too few experts", MOE_ERR_SHAPE, [](S& s, E*) { s.experts = s.experts.first(5); }},
      {"sub-heads that do not divide", MOE_ERR_SHAPE, [](S& s, E*) { s.n_subheads = 5; }},
      {"NaN in the head layer", MOE_ERR_NON_FINITE, [](S& s, E*) { s.head = with_nan.data(); }},
      {"NaN in the merge layer", MOE_ERR_NON_FINITE, [](S& s, E*) { s.merge = with_nan.data(); }},
      {"head bias alone", MOE_ERR_ARGUMENT, [](S& s, E*) { s.head_bias = with_nan.data(); }},
      {"merge bias alone", MOE_ERR_ARGUMENT, [](S& s, E*) { s.merge_bias = with_nan.data(); }},
      {"k 0", MOE_ERR_RANGE, [](S& s, E*) { s.router.k = 0; }},
      {"k above n", MOE_ERR_RANGE, [](S& s, E*) { s.router.k = 7; }},
      {"threshold NaN", MOE_ERR_RANGE,
       [](S& s, E*) {
         s.router.kind = RouterKind::kThreshold;
         s.router.threshold = std::nanf("");
       }},
      {"no router", MOE_ERR_ARGUMENT, [](S& s, E*) { s.router_weight = nullptr; }},
      {"no up", MOE_ERR_ARGUMENT, [](S&, E* e) { e[2].up = nullptr; }},
      {"mixed gates", MOE_ERR_ARGUMENT, [](S&, E* e) { e[2].gate = nullptr; }},
      {"NaN in a weight", MOE_ERR_NON_FINITE, [](S&, E* e) { e[1].down = with_nan.data(); }},
      {"NaN in a bias", MOE_ERR_NON_FINITE, [](S&, E* e) { e[1].up_bias = with_nan.data() + 90; }},
      {"float weights, a8", MOE_ERR_UNSUPPORTED, [](S& s, E*) { s.precision = ActPrecision::kA8; }},
      {"int8 weights, a8_group", MOE_ERR_UNSUPPORTED,
       [](S& s, E*) {
         s.format = FormatId::kInt8;
         s.precision = ActPrecision::kA8Group;
       }},
      {"i32 weights", MOE_ERR_UNSUPPORTED, [](S& s, E*) { s.format = FormatId::kI32; }},
      {"negative limit", MOE_ERR_RANGE, [](S& s, E*) { s.act.limit = -1; }},
      {"shared gate alone", MOE_ERR_ARGUMENT, [](S& s, E*) { s.shared_gate = with_nan.data(); }},
      {"hash table out of range", MOE_ERR_RANGE,
       [](S& s, E*) {
         s.router.kind = RouterKind::kHash;
         s.router_weight = s.router_bias = nullptr;
         s.router_table = bad_table;
         s.vocab_size = 2;
       }},
      {"cosine without projection", MOE_ERR_ARGUMENT,
       [](S& s, E*) {
         s.router.kind = RouterKind::kCosine;
         s.router_bias = nullptr;
       }},
  };
  for (const Refusal& r : refusals) {
    RandomLayer weights;
    r.change(weights.spec, weights.experts.data());
    const Status s = create(weights.spec);
    EXPECT_EQ(s.code(), r.code) << r.name << ": " << s.text();
    EXPECT_NE(std::strstr(s.text(), "layer"), nullptr) << s.text();
  }
}

}  // namespace
}  // namespace moe
