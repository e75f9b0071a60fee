// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/router/table.h"
#include "tests/kernels/random_layer.h"
#include "tests/support/cpu_devices.h"

namespace moe {
namespace {

RouterConfig router(RouterKind kind, int32_t k = 2) {
  RouterConfig r;
  r.kind = kind;
  r.k = k;
  r.threshold = 0.6f;
  r.tau = 0.3f;
  return r;
}

void add_formats(std::vector<LayerKind>& kinds) {
  const struct {
    const char* name;
    FormatId format;
    ActPrecision act;
  } formats[] = {{"f32", FormatId::kF32, ActPrecision::kF32},
                 {"bf16", FormatId::kBf16, ActPrecision::kF32},
                 {"f16", FormatId::kF16, ActPrecision::kF32},
                 {"int8 a8", FormatId::kInt8, ActPrecision::kA8},
                 {"int8 a8_block", FormatId::kInt8, ActPrecision::kA8Block},
                 {"int8 f32", FormatId::kInt8, ActPrecision::kF32},
                 {"ternary2 a8", FormatId::kTernary2, ActPrecision::kA8},
                 {"ternary2 a8_block", FormatId::kTernary2, ActPrecision::kA8Block},
                 {"int4 a8_group", FormatId::kInt4, ActPrecision::kA8Group},
                 {"ternary3 a8", FormatId::kTernary3, ActPrecision::kA8},
                 {"ternary3 f32", FormatId::kTernary3, ActPrecision::kF32}};
  for (const auto& f : formats) {
    LayerKind k;
    k.name = f.name;
    k.d_model = 272;  // more than one block of activations, the last one incomplete
    k.d_ff = 265;
    k.n_experts = 3;
    k.format = f.format;
    k.act_precision = f.act;
    k.sub_norm = f.act == ActPrecision::kA8;
    k.router = router(RouterKind::kSoftmax);
    kinds.push_back(k);
  }
}

void add_routers(std::vector<LayerKind>& kinds) {
  for (const RouterInfo& info : kRouters) {
    LayerKind k;
    k.name = std::string("router ") + info.name;
    k.router = router(info.kind);
    k.router_format = FormatId::kBf16;
    k.biases = true;
    kinds.push_back(k);
  }
}

void add_activations(std::vector<LayerKind>& kinds) {
  for (Activation a : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
                       Activation::kSilu, Activation::kRelu2}) {
    for (bool gated : {false, true}) {
      LayerKind k;
      k.name = "activation " + std::to_string(static_cast<int>(a)) + (gated ? " gated" : "");
      k.act.kind = a;
      k.gated = gated;
      k.router = router(RouterKind::kSoftmax, 1);
      kinds.push_back(k);
    }
  }
  LayerKind clamped;
  clamped.name = "clamped swiglu";
  clamped.act = {Activation::kSilu, 1.702f, 0.7f, 1};
  clamped.router = router(RouterKind::kSoftmax, 3);
  kinds.push_back(clamped);
}

void add_structures(std::vector<LayerKind>& kinds) {
  for (int32_t h : {1, 2, 3}) {
    LayerKind k;
    k.name = "mh-moe " + std::to_string(h);
    k.n_subheads = h;
    k.head = k.merge = true;
    k.biases = h != 2;
    k.shared = h == 3;
    k.format = FormatId::kTernary2;
    k.act_precision = ActPrecision::kA8;
    k.router = router(RouterKind::kSoftmax);
    kinds.push_back(k);
  }
  for (int32_t which : {0, 1, 2}) {
    LayerKind k;
    k.name = std::string("mh-moe, ") + (which == 0 ? "neither" : which == 1 ? "head" : "merge");
    k.n_subheads = 3;
    k.head = which == 1;
    k.merge = which == 2;
    k.shared = which == 0;
    k.n_sublayers = which == 1 ? 2 : 0;
    k.gated = which != 1;
    k.format = FormatId::kInt8;
    k.act_precision = ActPrecision::kA8;
    k.router = router(which == 2 ? RouterKind::kThreshold : RouterKind::kSoftmax);
    kinds.push_back(k);
  }
  for (bool gate : {false, true}) {
    LayerKind k;
    k.name = gate ? "gated shared expert" : "shared expert";
    k.shared = true;
    k.shared_gate = gate;
    k.router = router(RouterKind::kThreshold);
    kinds.push_back(k);
  }
  LayerKind stack;
  stack.name = "x-moe stack";
  stack.n_sublayers = 3;
  stack.gated = false;
  stack.biases = true;
  stack.act.kind = Activation::kGelu;
  stack.router = router(RouterKind::kCosine, 1);
  kinds.push_back(stack);
  LayerKind many;
  many.name = "more experts than a wave";
  many.n_experts = 37;
  many.router = router(RouterKind::kThreshold);
  many.router.threshold = 1;
  kinds.push_back(many);
  LayerKind dense;
  dense.name = "dense";
  dense.n_experts = 0;
  dense.shared = true;
  dense.format = FormatId::kTernary2;
  dense.act_precision = ActPrecision::kA8;
  dense.sub_norm = true;
  kinds.push_back(dense);
}

std::vector<LayerKind> all_kinds() {
  std::vector<LayerKind> kinds;
  add_formats(kinds);
  add_routers(kinds);
  add_activations(kinds);
  add_structures(kinds);
  return kinds;
}

std::vector<BatchRow> one_session(int32_t n) {
  std::vector<BatchRow> rows;
  for (int32_t i = 0; i < n; ++i) rows.push_back({0, i, i * 3 % RandomLayer::kVocab});
  return rows;
}

// Runs the rows in calls of `batch`.
std::vector<float> in_batches(Device& device, const TestLayer& layer, const std::vector<float>& x,
                              const std::vector<BatchRow>& rows, int32_t batch) {
  const auto d = static_cast<size_t>(layer.op.d_model);
  const auto n = static_cast<int32_t>(rows.size());
  std::vector<float> y;
  for (int32_t at = 0; at < n; at += batch) {
    const int32_t m = std::min(batch, n - at);
    const auto* begin = x.data() + static_cast<size_t>(at) * d;
    const std::vector<float> part(begin, begin + static_cast<size_t>(m) * d);
    const LayerRun run = run_layer(device, layer, part, m, &rows[static_cast<size_t>(at)]);
    EXPECT_TRUE(run.status.ok()) << run.status.text();
    y.insert(y.end(), run.y.begin(), run.y.end());
  }
  return y;
}

TEST(DeviceFfn, SameBitsOnEveryIsaThreadCountAndBatch) {
  const std::vector<OpenedDevice> devices = all_devices();
  for (const LayerKind& kind : all_kinds()) {
    RandomLayer random(kind);
    const int32_t n = kind.d_model > 256 ? 10 : 17;  // wide layers are slow under a sanitizer
    const std::vector<BatchRow> rows = one_session(n);
    const std::vector<float> x = random_floats(static_cast<size_t>(n * kind.d_model), 7, 2);
    std::vector<float> first;
    for (const OpenedDevice& d : devices) {
      for (int32_t batch : {n, 1, 3}) {
        const std::vector<float> y = in_batches(*d.device, random.layer, x, rows, batch);
        if (first.empty()) first = y;
        ASSERT_EQ(first_difference(first, y), -1)
            << kind.name << ", " << d.name << ", batches of " << batch;
      }
    }
    EXPECT_EQ(random.layer.held, 0);
    EXPECT_LE(random.layer.most_held, 16);
    float largest = 0;
    for (float v : first) largest = std::max(largest, std::fabs(v));
    EXPECT_GT(largest, 1e-3f) << kind.name << ": nothing was computed";
  }
}

TEST(DeviceFfn, AccumulatesInPlaceWithOneRounding) {
  LayerKind kind;
  kind.router = router(RouterKind::kSoftmax);
  kind.shared = true;
  for (bool dense : {false, true}) {
    kind.n_experts = dense ? 0 : 6;
    RandomLayer random(kind);
    random.layer.op.scale = 0.37f;
    const std::vector<float> x = random_floats(static_cast<size_t>(5 * kind.d_model), 3);
    const OpenedDevice d(nullptr, 2);
    random.layer.op.scale = 1;
    const std::vector<float> plain = run_layer(*d.device, random.layer, x, 5).y;
    random.layer.op.scale = 0.37f;
    random.layer.op.accumulate = true;
    const std::vector<float> start = random_floats(x.size(), 4);
    const std::vector<float> y = run_layer(*d.device, random.layer, x, 5, nullptr, start).y;
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], std::fma(0.37f, plain[i], start[i])) << dense;
    }
  }
}

TEST(DeviceFfn, CapacityCountsEverySessionByItself) {
  for (int32_t h : {1, 2}) {
    LayerKind kind;
    kind.n_subheads = h;
    kind.head = kind.merge = h > 1;
    kind.router = router(RouterKind::kThreshold);
    kind.router.gamma = 1;
    RandomLayer random(kind);
    const auto d = static_cast<size_t>(kind.d_model);
    const std::vector<float> x = random_floats(12 * d, 3);
    std::vector<BatchRow> rows = one_session(12);
    for (size_t i = 5; i < 12; ++i) rows[i].session = 1;
    for (const OpenedDevice& device : all_devices()) {
      const LayerRun both = run_layer(*device.device, random.layer, x, 12, rows.data());
      const std::vector<float> a(x.begin(), x.begin() + static_cast<int64_t>(5 * d));
      const std::vector<float> b(x.begin() + static_cast<int64_t>(5 * d), x.end());
      std::vector<float> alone = run_layer(*device.device, random.layer, a, 5, &rows[0]).y;
      const std::vector<float> second = run_layer(*device.device, random.layer, b, 7, &rows[5]).y;
      alone.insert(alone.end(), second.begin(), second.end());
      EXPECT_EQ(first_difference(both.y, alone), -1) << device.name;
      EXPECT_NE(std::count(both.kept.begin(), both.kept.end(), 0), 0);
    }
  }
}

TEST(DeviceFfn, StatisticsAddUp) {
  LayerKind kind;
  kind.router = router(RouterKind::kThreshold);
  kind.router.gamma = 0.8f;
  kind.act.kind = Activation::kRelu;
  RandomLayer random(kind);
  std::vector<uint64_t> tokens(6);
  std::vector<uint64_t> histogram(7);
  RoutingStats stats;
  stats.tokens_per_expert = tokens.data();
  stats.experts_per_token = histogram.data();
  random.layer.op.stats = &stats;
  const OpenedDevice d(nullptr, 2);
  const std::vector<float> x = random_floats(static_cast<size_t>(20 * kind.d_model), 3);
  const LayerRun run = run_layer(*d.device, random.layer, x, 20);
  uint64_t asked = 0;
  for (int32_t c : run.count) asked += static_cast<uint64_t>(c);
  uint64_t served = 0;
  for (uint64_t t : tokens) served += t;
  uint64_t weighted = 0;
  for (size_t i = 0; i < 7; ++i) weighted += i * histogram[i];
  EXPECT_EQ(stats.n_tokens, 20u);
  EXPECT_GT(stats.n_dropped, 0u);
  EXPECT_EQ(served + stats.n_dropped, asked);
  EXPECT_EQ(weighted, served);
  EXPECT_EQ(stats.n_activations, served * 40);
  EXPECT_GT(stats.n_positive, stats.n_activations / 4);
  EXPECT_LT(stats.n_positive, stats.n_activations * 3 / 4);
}

// An expert's factor and the router's norm against an ordinary layer whose matrices have them: both
// are powers of two, so the sums are the same.
TEST(DeviceFfn, FactorsOfExpertsAndANormForTheRouter) {
  LayerKind kind;
  kind.router = router(RouterKind::kSoftmax);
  const std::vector<float> x = random_floats(static_cast<size_t>(7 * kind.d_model), 3);
  for (const OpenedDevice& d : all_devices()) {
    RandomLayer plain(kind);
    const LayerRun expected = run_layer(*d.device, plain.layer, x, 7);
    ASSERT_TRUE(expected.status.ok());
    RandomLayer random(kind);
    const std::vector<float> twice(64, 2.0f);
    random.layer.op.expert_scale = twice.data();
    LayerRun found = run_layer(*d.device, random.layer, x, 7);
    ASSERT_TRUE(found.status.ok());
    ASSERT_EQ(found.expert, expected.expert);
    ASSERT_EQ(found.weight, expected.weight);  // as the router gave them
    for (size_t i = 0; i < found.y.size(); ++i) EXPECT_EQ(found.y[i], 2 * expected.y[i]) << d.name;
    random.layer.op.expert_scale = nullptr;
    const std::vector<float> zeros(static_cast<size_t>(kind.d_model), 0.0f);
    random.layer.op.router_norm = {NormKind::kRms, 1e-6f, zeros.data(), nullptr};
    found = run_layer(*d.device, random.layer, x, 7);
    ASSERT_TRUE(found.status.ok());
    for (size_t i = 0; i < found.scores.size(); ++i) {  // the bias of the scores is left
      EXPECT_EQ(found.scores[i], found.scores[i % static_cast<size_t>(kind.n_experts)]);
    }
  }
}

TEST(DeviceFfn, ScalesAndActivatesRows) {
  const std::vector<float> gate = random_floats(5 * 37, 1), up = random_floats(5 * 90, 2);
  for (const OpenedDevice& d : all_devices()) {
    Result<Stream*> stream = d.device->open_stream({.max_rows = 5, .d_model = 37});
    ASSERT_TRUE(stream.ok());
    std::vector<float> y = gate;
    d.device->scale(*stream.value(), {y.data(), 5, 37, -1.5f});
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], -1.5f * gate[i]);
    y = gate;
    ActivateOp op;
    op.gate = y.data();
    op.up = up.data() + 11;
    op.ld_up = 90;
    op.n_rows = 5;
    op.d = 37;
    op.act.kind = Activation::kSilu;
    d.device->activate(*stream.value(), op);
    for (size_t r = 0; r < 5; ++r) {
      for (size_t i = 0; i < 37; ++i) {
        const double g = static_cast<double>(gate[r * 37 + i]);
        EXPECT_NEAR(static_cast<double>(y[r * 37 + i]),
                    g / (1 + std::exp(-g)) * static_cast<double>(up[r * 90 + 11 + i]), 1e-5);
      }
    }
    d.device->close_stream(stream.value());
  }
}

TEST(DeviceFfn, ScoresThatAreNotFiniteAreLatched) {
  LayerKind kind;
  kind.router = router(RouterKind::kSoftmax);
  for (int32_t bad_row : {0, 11}) {
    RandomLayer random(kind);
    std::vector<float> x = random_floats(static_cast<size_t>(12 * kind.d_model), 3);
    x[static_cast<size_t>(bad_row * kind.d_model + 5)] = std::nanf("");
    for (const OpenedDevice& d : all_devices()) {
      const LayerRun run = run_layer(*d.device, random.layer, x, 12);
      EXPECT_EQ(run.status.code(), MOE_ERR_NON_FINITE);
      const std::string expected = "token " + std::to_string(bad_row) + " for expert 0";
      EXPECT_NE(std::string(run.status.text()).find(expected), std::string::npos);
    }
  }
}

TEST(DeviceFfn, AnExpertThatCannotBeReadIsReportedAndTheOthersReleased) {
  LayerKind kind;
  kind.router = router(RouterKind::kThreshold);
  kind.router.threshold = 1;
  RandomLayer random(kind);
  random.layer.fail_at = 4;
  const OpenedDevice d(nullptr, 2);
  const std::vector<float> x = random_floats(static_cast<size_t>(2 * kind.d_model), 3);
  const LayerRun run = run_layer(*d.device, random.layer, x, 2);
  EXPECT_EQ(run.status.code(), MOE_ERR_IO);
  EXPECT_EQ(random.layer.held, 0);
}

}  // namespace
}  // namespace moe
