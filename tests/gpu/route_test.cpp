// SPDX-License-Identifier: MIT
// route_tokens() compared with the routers on the host, including capacity and errors.

#include "kernels/cuda/ops.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/random_floats.h"
#include "tests/kernels/route_helper.h"

namespace moe::cuda {
namespace {

struct DeviceRouting {
  OnDevice<int32_t> expert;
  OnDevice<float> weight;
  OnDevice<uint8_t> kept;
  OnDevice<int32_t> count;
  OnDevice<float> prob;
  OnDevice<float> floats;
  OnDevice<int32_t> ints;
  OnDevice<int32_t> fault;
  DeviceRouteOp op;

  DeviceRouting(const RouterConfig& config, int32_t n_tokens, int32_t n_experts)
      : DeviceRouting(config, n_tokens, n_experts, router_max_k(config, n_experts)) {}

 private:
  DeviceRouting(const RouterConfig& config, int32_t n_tokens, int32_t n_experts, int32_t max_k)
      : expert(size(n_tokens, max_k)),
        weight(size(n_tokens, max_k)),
        kept(size(n_tokens, max_k)),
        count(size(n_tokens, 1)),
        prob(size(n_tokens, max_k)),
        floats(size(n_tokens, 2 * n_experts)),
        ints(size(n_tokens, n_experts)),
        fault(std::vector<int32_t>{0}) {
    op.config = config;
    op.n_experts = n_experts;
    op.out = {n_tokens, max_k, expert, weight, kept, count, nullptr};
    op.prob = prob;
    op.floats = floats;
    op.ints = ints;
    op.fault = fault;
  }
  static size_t size(int32_t a, int32_t b) {
    return static_cast<size_t>(a) * static_cast<size_t>(b);
  }
};

void expect_routed(const DeviceRouting& found, const Routed& expected) {
  EXPECT_EQ(found.count.values(), expected.count);
  EXPECT_EQ(found.expert.values(), expected.expert);
  EXPECT_EQ(found.kept.values(), expected.kept);
  EXPECT_SAME_BITS(found.prob.values(), expected.prob);
  EXPECT_SAME_BITS(found.weight.values(), expected.weight);
}

// Random scores, with rows of equal scores, of ties and of extremes.
std::vector<float> scores_of(int32_t n_tokens, int32_t n_experts, unsigned seed) {
  std::vector<float> z =
      random_floats(static_cast<size_t>(n_tokens) * static_cast<size_t>(n_experts), seed, 2);
  for (int32_t e = 0; e < n_experts; ++e) {
    const auto at = [&](int32_t t) -> float& { return z[static_cast<size_t>(t * n_experts + e)]; };
    if (n_tokens > 1) at(1) = e % 2 == 0 ? -0.0f : 0.0f;
    if (n_tokens > 2) at(2) = static_cast<float>(e * 5 % 7) - 3;
    if (n_tokens > 3) at(3) = e == n_experts / 2 ? 3e38f : -3e38f;
    if (n_tokens > 4) at(4) = static_cast<float>(-e) * 90;
  }
  return z;
}

void run_case(const RouterConfig& config, int32_t n_tokens, int32_t n_experts,
              const float* selection_bias) {
  SCOPED_TRACE(testing::Message() << router_info(config.kind).name << ", " << n_tokens
                                  << " tokens, " << n_experts << " experts, k " << config.k
                                  << ", threshold " << config.threshold);
  const std::vector<float> z = scores_of(n_tokens, n_experts, 11);
  const Routed expected = route_all(config, z, n_tokens, n_experts, {selection_bias, nullptr});
  ASSERT_TRUE(expected.status.ok()) << expected.status.text();
  DeviceRouting routing(config, n_tokens, n_experts);
  const OnDevice<float> scores(z);
  OnDevice<float> bias;
  if (selection_bias != nullptr) {
    bias = OnDevice<float>(std::vector<float>(selection_bias, selection_bias + n_experts));
  }
  routing.op.scores = scores;
  routing.op.selection_bias = bias;
  ASSERT_EQ(route_tokens(nullptr, routing.op), cudaSuccess);
  expect_routed(routing, expected);
  EXPECT_EQ(routing.fault.values()[0], 0);
}

std::vector<RouterConfig> configs_for(int32_t n) {
  std::vector<RouterConfig> all;
  RouterConfig c;
  for (const RouterWeights weights : {RouterWeights::kRaw, RouterWeights::kRenormalised,
                                      RouterWeights::kChosen, RouterWeights::kOne}) {
    c = {};
    c.weights = weights;
    c.scale = 1.5f;
    for (const int32_t k : {1, 3, n}) {
      c.kind = RouterKind::kSoftmax;
      c.k = std::min(k, n);
      all.push_back(c);
      if (weights > RouterWeights::kRenormalised) continue;
      c.kind = RouterKind::kSigmoid;
      all.push_back(c);
    }
    c.n_groups = n % 3 == 0 ? 3 : n % 4 == 0 ? 4 : 1;
    c.top_groups = std::max(1, c.n_groups / 2);
    c.k = 2;
    for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSigmoid}) {
      c.kind = kind;
      all.push_back(c);
    }
    c.kind = RouterKind::kThreshold;
    c.threshold = 0.7f;
    all.push_back(c);
    c.min_k = 2;
    c.max_k = std::min(n, 5);
    all.push_back(c);
    c.min_k = 1;
    c.max_k = 0;
    c.threshold = 1;
    all.push_back(c);
  }
  for (const CosineGate gate : {CosineGate::kSoftmax, CosineGate::kSigmoid}) {
    for (const int topk_norm : {-1, 0, 1}) {
      c = {};
      c.kind = RouterKind::kCosine;
      c.gate = gate;
      c.topk_norm = static_cast<int8_t>(topk_norm);
      c.tau = 0.3f;
      c.k = 2;
      all.push_back(c);
    }
  }
  c.gate = CosineGate::kSoftmax;
  c.by_threshold = true;
  c.threshold = 0.6f;
  all.push_back(c);
  for (const RouterInfo& info : kRouters) {
    if (info.scores == RouterScores::kTable) continue;
    c = {};
    c.kind = info.kind;
    c.k = 2;
    c.threshold = 0.5f;
    all.push_back(c);
  }
  return all;
}

TEST(CudaRoute, EveryRouterHasTheHostsBits) {
  for (const int32_t n : {2, 5, 33, 64}) {
    for (const RouterConfig& config : configs_for(n)) {
      if (!validate_router(config, n).ok()) continue;
      run_case(config, 7, n, nullptr);
    }
  }
}

TEST(CudaRoute, ManyExperts) {
  for (const int32_t n : {128, 250, 400, 700}) {  // 700 are routed by single threads
    for (const int32_t k : {8, 100}) {
      RouterConfig c;
      c.k = k;
      c.weights = RouterWeights::kRenormalised;
      run_case(c, 6, n, nullptr);
      const std::vector<float> bias = random_floats(static_cast<size_t>(n), 3, 0.3f);
      for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSigmoid}) {
        c.kind = kind;
        c.n_groups = c.top_groups = 1;
        run_case(c, 6, n, bias.data());
        c.n_groups = 2;
        c.top_groups = k == 8 ? 1 : 2;
        run_case(c, 6, n, bias.data());
      }
    }
    RouterConfig c;
    c.kind = RouterKind::kThreshold;
    c.threshold = 0.9f;
    run_case(c, 6, n, nullptr);
  }
}

// Routing and sorting in one launch give the same results as in two.
TEST(CudaRoute, TogetherWithTheirPairs) {
  for (const int32_t n_tokens : {1, 7, 33}) {
    for (const int32_t n : {5, 64, 300, 512, 700}) {
      SCOPED_TRACE(testing::Message() << n_tokens << " tokens, " << n << " experts");
      RouterConfig config;
      config.kind = n == 64 ? RouterKind::kThreshold : RouterKind::kSoftmax;
      config.threshold = 0.5f;
      config.k = n == 512 ? n : 4;  // the most shared memory
      const OnDevice<float> scores(scores_of(n_tokens, n, 3));
      DeviceRouting apart(config, n_tokens, n);
      DeviceRouting together(config, n_tokens, n);
      apart.op.scores = together.op.scores = scores;
      const auto slots = static_cast<size_t>(n_tokens * apart.op.out.max_k);
      const auto experts = static_cast<size_t>(n);
      const OnDevice<int32_t> scratch(
          static_cast<size_t>(group_pairs_scratch(n_tokens, apart.op.out.max_k, n)));
      struct DeviceLists {
        OnDevice<int32_t> n_pairs, n_groups, group, begin, token, expert, place;
        PairLists get() const { return {n_pairs, n_groups, group, begin, token, expert, place}; }
      };
      const std::vector<int32_t> none(slots + experts + 1, -7);
      const auto make = [&] { return DeviceLists{none, none, none, none, none, none, none}; };
      const DeviceLists a = make();
      const DeviceLists b = make();
      ASSERT_EQ(route_tokens(nullptr, apart.op), cudaSuccess);
      ASSERT_EQ(group_pairs(nullptr, apart.op.out, n, a.get(), scratch), cudaSuccess);
      ASSERT_EQ(route_and_group(nullptr, together.op, b.get(), scratch), cudaSuccess);
      EXPECT_EQ(together.expert.values(), apart.expert.values());
      EXPECT_EQ(together.kept.values(), apart.kept.values());
      EXPECT_EQ(together.count.values(), apart.count.values());
      EXPECT_SAME_BITS(together.weight.values(), apart.weight.values());
      EXPECT_EQ(b.n_pairs.values(), a.n_pairs.values());
      EXPECT_EQ(b.n_groups.values(), a.n_groups.values());
      EXPECT_EQ(b.group.values(), a.group.values());
      EXPECT_EQ(b.begin.values(), a.begin.values());
      EXPECT_EQ(b.token.values(), a.token.values());
      EXPECT_EQ(b.expert.values(), a.expert.values());
      EXPECT_EQ(b.place.values(), a.place.values());
    }
  }
}

TEST(CudaRoute, HashReadsTheTokensOfItsRows) {
  RouterConfig config;
  config.kind = RouterKind::kHash;
  config.scale = 0.5f;
  const std::vector<int32_t> table{3, 1, 0, 2, 2, 6};
  const std::vector<BatchRow> rows{{0, 0, 5}, {0, 1, 0}, {1, 7, 3}};
  std::vector<int32_t> entries;
  for (int t = 0; t < 6; ++t) {
    entries.push_back(table[static_cast<size_t>(rows[static_cast<size_t>(t / 2)].token)]);
  }
  const Routed expected = route_all(config, {}, 6, 7, {nullptr, entries.data()});
  DeviceRouting routing(config, 6, 7);
  const OnDevice<int32_t> device_table(table);
  const OnDevice<BatchRow> device_rows(rows);
  routing.op.table = device_table;
  routing.op.rows = device_rows;
  routing.op.n_subheads = 2;
  ASSERT_EQ(route_tokens(nullptr, routing.op), cudaSuccess);
  expect_routed(routing, expected);
}

TEST(CudaRoute, TheFirstTokenWithoutFiniteScoresIsReported) {
  for (const int32_t n : {10, 600}) {
    RouterConfig config;
    config.k = 2;
    std::vector<float> z = random_floats(static_cast<size_t>(9 * n), 2);
    z[static_cast<size_t>(6 * n + 3)] = __builtin_nanf("");
    z[static_cast<size_t>(5 * n)] = __builtin_inff();
    DeviceRouting routing(config, 9, n);
    const OnDevice<float> scores(z);
    routing.op.scores = scores;
    ASSERT_EQ(route_tokens(nullptr, routing.op), cudaSuccess);
    EXPECT_EQ(routing.fault.values()[0], 6);
    const std::vector<int32_t> count = routing.count.values();
    for (size_t t = 0; t < 9; ++t) EXPECT_EQ(count[t], t == 5 || t == 6 ? 0 : 2) << t;
    for (const int32_t e : routing.expert.values()) EXPECT_TRUE(e >= 0 && e < n);
  }
}

TEST(CudaRoute, CapacityOfEverySession) {
  const std::vector<BatchRow> rows{{0, 0, 1}, {0, 1, 1}, {0, 2, 1}, {0, 3, 1},
                                   {2, 0, 1}, {2, 1, 1}, {1, 9, 1}, {0, 4, 1}};
  constexpr int32_t kSubheads = 3;
  constexpr int32_t kExperts = 5;
  constexpr int32_t kTokens = 8 * kSubheads;
  for (const CapacityOrder order : {CapacityOrder::kPriority, CapacityOrder::kArrival}) {
    for (const float gamma : {0.4f, 1.0f, 2.5f}) {
      for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kThreshold}) {
        RouterConfig config;
        config.kind = kind;
        config.k = 2;
        config.threshold = 0.8f;
        config.gamma = gamma;
        config.order = order;
        config.min_capacity = 1;
        std::vector<float> z = random_floats(kTokens * kExperts, 21);
        for (size_t i = 40; i < 60; ++i) z[i] = z[i % 5];  // equal probabilities
        Routed expected;
        for (const auto& [begin, end] : {std::pair{0, 4}, {4, 6}, {6, 7}, {7, 8}}) {
          const int32_t n = (end - begin) * kSubheads;
          const auto at = z.begin() + begin * kSubheads * kExperts;
          const Routed part = route_all(config, {at, at + n * kExperts}, n, kExperts);
          const auto append = [](auto& to, const auto& from) {
            to.insert(to.end(), from.begin(), from.end());
          };
          append(expected.expert, part.expert);
          append(expected.weight, part.weight);
          append(expected.prob, part.prob);
          append(expected.kept, part.kept);
          append(expected.count, part.count);
        }
        DeviceRouting routing(config, kTokens, kExperts);
        const OnDevice<float> scores(z);
        const OnDevice<BatchRow> device_rows(rows);
        routing.op.scores = scores;
        routing.op.rows = device_rows;
        routing.op.n_subheads = kSubheads;
        ASSERT_EQ(route_tokens(nullptr, routing.op), cudaSuccess);
        expect_routed(routing, expected);
      }
    }
  }
}

}  // namespace
}  // namespace moe::cuda
