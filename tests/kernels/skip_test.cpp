// SPDX-License-Identifier: MIT
// Skipping experts that are not resident and have a small probability: RouterConfig::resident.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/router/table.h"
#include "tests/kernels/random_layer.h"
#include "tests/support/cpu_devices.h"

namespace moe {
namespace {

constexpr int32_t kRows = 3;
constexpr int32_t kExperts = 6;

struct Routers {
  const char* name;
  RouterConfig router;
  bool renormalises;
};

std::vector<Routers> routers() {
  std::vector<Routers> all;
  RouterConfig r;
  r.k = 3;
  all.push_back({"softmax", r, false});
  r.weights = RouterWeights::kRenormalised;
  r.scale = 2.5f;
  all.push_back({"renormalised", r, true});
  r.weights = RouterWeights::kChosen;
  all.push_back({"chosen", r, true});
  r.weights = RouterWeights::kOne;
  all.push_back({"one", r, false});
  r = {};
  r.kind = RouterKind::kThreshold;
  r.threshold = 0.9f;
  all.push_back({"threshold", r, false});
  r = {};
  r.kind = RouterKind::kCosine;
  r.k = 3;
  r.tau = 0.3f;
  all.push_back({"cosine", r, true});
  r.topk_norm = 0;
  all.push_back({"cosine, raw", r, false});
  return all;
}

// The probability of every (token, slot) pair: the softmax over all experts.
std::vector<float> probabilities(const LayerRun& run, const RouterConfig& r) {
  std::vector<float> all;
  std::vector<float> z(kExperts);
  std::vector<float> p(kExperts);
  for (int32_t t = 0; t < kRows; ++t) {
    for (size_t e = 0; e < kExperts; ++e) {
      const float score = run.scores[static_cast<size_t>(t) * kExperts + e];
      z[e] = r.kind == RouterKind::kCosine ? score / r.tau : score;
    }
    softmax_all(z.data(), kExperts, p.data());
    for (int32_t j = 0; j < run.max_k; ++j) {
      const auto at = static_cast<size_t>(t * run.max_k + j);
      all.push_back(p[static_cast<size_t>(run.expert[at])]);
    }
  }
  return all;
}

// The slot of a token's most probable expert, which a selection bias may not rank first.
int32_t best_slot(const LayerRun& run, const std::vector<float>& p, size_t token) {
  const float* const of_token = p.data() + token * static_cast<size_t>(run.max_k);
  return static_cast<int32_t>(std::max_element(of_token, of_token + run.count[token]) - of_token);
}

// A hook that changes nothing.
void look(void*, const RoutedTokens&, Routing*) {}

TEST(Skip, ByTheLargestProbabilityOfAnyRow) {
  uint64_t n_skipped = 0;
  uint64_t n_spared = 0;  // too probable for another row, or another row's best
  for (const Routers& kind : routers()) {
    for (int round = 0; round < 24; ++round) {
      const float most = round % 3 == 0 ? 0.08f : round % 3 == 1 ? 0.2f : 1.0f;
      LayerKind layer_kind;
      layer_kind.router = kind.router;
      RandomLayer random(layer_kind);
      TestLayer& layer = random.layer;
      const std::vector<float> x = random_floats(kRows * 48, static_cast<unsigned>(3 + round));
      const OpenedDevice d(nullptr, 2);
      const LayerRun all = run_layer(*d.device, layer, x, kRows);
      const std::vector<float> p = probabilities(all, kind.router);
      layer.missing = {1, 2, 4};
      layer.op.router.resident = most;
      RoutingStats stats;
      layer.op.stats = &stats;
      const LayerRun run = run_layer(*d.device, layer, x, kRows);
      ASSERT_TRUE(run.status.ok()) << run.status.text();
      uint64_t n = 0;
      double lost = 0;
      for (int32_t t = 0; t < kRows; ++t) {
        float before = 0;
        float left = 0;
        for (int32_t j = 0; j < all.count[static_cast<size_t>(t)]; ++j) {
          const auto at = static_cast<size_t>(t * all.max_k + j);
          const int32_t e = all.expert[at];
          bool skip = layer.would_evict(e);
          const bool missing = skip;
          for (size_t i = 0; i < p.size(); ++i) {
            const auto slot = static_cast<int32_t>(i) % all.max_k;
            const auto token = i / static_cast<size_t>(all.max_k);
            const bool wanted = all.expert[i] == e && slot < all.count[token];
            skip = skip && (!wanted || (slot != best_slot(all, p, token) && p[i] <= most));
          }
          EXPECT_EQ(run.kept[at] == 0, skip) << kind.name << " " << t << " " << j;
          n += skip ? 1 : 0;
          const bool best = j == best_slot(all, p, static_cast<size_t>(t));
          n_spared += missing && !skip && !best ? 1 : 0;
          lost += skip ? static_cast<double>(p[at]) : 0;
          before += all.weight[at];
          left += skip ? 0 : all.weight[at];
          EXPECT_EQ(run.weight[at] == 0, skip);
        }
        for (int32_t j = 0; j < all.count[static_cast<size_t>(t)]; ++j) {
          const auto at = static_cast<size_t>(t * all.max_k + j);
          if (run.kept[at] == 0) continue;
          const float factor = kind.renormalises ? before / left : 1;
          EXPECT_FLOAT_EQ(run.weight[at], all.weight[at] * factor) << kind.name;
        }
      }
      EXPECT_EQ(stats.n_skipped, n) << kind.name;
      EXPECT_EQ(stats.n_dropped, 0u);
      EXPECT_NEAR(stats.skipped_probability, lost, 1e-6);
      n_skipped += n;
      layer.op.hook.call = look;  // a hook that only reads changes no result
      const LayerRun watched = run_layer(*d.device, layer, x, kRows);
      EXPECT_EQ(watched.kept, run.kept) << kind.name;
      EXPECT_EQ(first_difference(watched.y, run.y), -1) << kind.name;
    }
  }
  EXPECT_GT(n_skipped, 100u);
  EXPECT_GT(n_spared, 50u);
}

TEST(Skip, OneRowKeepsItsBestExpert) {
  LayerKind kind;
  kind.router.k = kExperts;
  RandomLayer random(kind);
  random.layer.op.router_weights.selection_bias = nullptr;
  random.layer.op.router.resident = 1;
  random.layer.missing = {0, 1, 2, 3, 4, 5};
  const std::vector<float> x = random_floats(48, 3);
  const OpenedDevice d(nullptr, 1);
  const LayerRun run = run_layer(*d.device, random.layer, x, 1);
  EXPECT_EQ(run.kept, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0}));
  random.layer.op.router.resident = 0;
  random.layer.op.router.k = 1;
  const LayerRun best = run_layer(*d.device, random.layer, x, 1);
  EXPECT_EQ(first_difference(run.y, best.y), -1);
}

}  // namespace
}  // namespace moe
