// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "tests/kernels/route_helper.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

std::vector<float> random_scores(int n, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> d(-4, 4);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = d(rng);
  return v;
}

double exact_softmax(const float* z, int n, int at) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(static_cast<double>(z[i]) - z[at]);
  return 1 / sum;
}

// A valid configuration for each router of the list.
RouterConfig sample_config(RouterKind kind) {
  RouterConfig c;
  c.kind = kind;
  c.k = 3;
  c.threshold = 0.8f;
  c.tau = 0.5f;
  return c;
}

TEST(Router, NamesAreFoundAndUnique) {
  for (const RouterInfo& info : kRouters) {
    EXPECT_EQ(find_router(info.name), &info);
    EXPECT_EQ(&router_info(info.kind), &info);
  }
  EXPECT_EQ(find_router("soft"), nullptr);
}

TEST(Router, EveryKindGivesTheSameTokenByToken) {
  constexpr int kN = 37;
  constexpr int kT = 11;
  const std::vector<float> z = random_scores(kN * kT, 5);
  std::vector<int32_t> table(kT);
  std::iota(table.begin(), table.end(), 4);
  for (const RouterInfo& info : kRouters) {
    SCOPED_TRACE(info.name);
    const RouterConfig c = sample_config(info.kind);
    const Routed all = route_all(c, z, kT, kN, {nullptr, table.data()});
    ASSERT_TRUE(all.status.ok()) << all.status.text();
    for (int t = 0; t < kT; ++t) {
      const std::vector<float> row(z.begin() + t * kN, z.begin() + (t + 1) * kN);
      const Routed one = route_all(c, row, 1, kN, {nullptr, &table[static_cast<size_t>(t)]});
      ASSERT_EQ(one.count[0], all.count[static_cast<size_t>(t)]);
      for (int j = 0; j < one.max_k; ++j) {
        const auto at = static_cast<size_t>(t * one.max_k + j);
        EXPECT_EQ(one.expert[static_cast<size_t>(j)], all.expert[at]);
        EXPECT_EQ(one.weight[static_cast<size_t>(j)], all.weight[at]);
        EXPECT_EQ(all.kept[at], j < all.count[static_cast<size_t>(t)]);
      }
    }
  }
}

TEST(Router, EveryKindChoosesExpertsOnceAndNoMoreThanItSays) {
  constexpr int kN = 23;
  constexpr int kT = 40;
  const std::vector<float> z = random_scores(kN * kT, 6);
  std::vector<int32_t> table(kT);
  for (int t = 0; t < kT; ++t) table[static_cast<size_t>(t)] = t % kN;
  for (const RouterInfo& info : kRouters) {
    SCOPED_TRACE(info.name);
    const RouterConfig c = sample_config(info.kind);
    ASSERT_TRUE(validate_router(c, kN).ok()) << validate_router(c, kN).text();
    EXPECT_EQ(validate_router(c, info.min_experts - 1).code(), MOE_ERR_RANGE);
    const Routed r = route_all(c, z, kT, kN, {nullptr, table.data()});
    EXPECT_EQ(r.max_k, router_max_k(c, kN));
    for (int t = 0; t < kT; ++t) {
      const int count = r.count[static_cast<size_t>(t)];
      ASSERT_TRUE(count >= 1 && count <= r.max_k);
      std::set<int32_t> seen;
      for (int j = 0; j < count; ++j) {
        const auto at = static_cast<size_t>(t * r.max_k + j);
        ASSERT_TRUE(r.expert[at] >= 0 && r.expert[at] < kN);
        EXPECT_TRUE(seen.insert(r.expert[at]).second);
        EXPECT_TRUE(r.weight[at] >= 0 && r.weight[at] < 2);
      }
    }
  }
}

TEST(Router, EveryKindHasATextThatIsListed) {
  RouterConfig c;
  moe_router unknown{};
  unknown.kind = "?";
  const std::string listed = layer_router(unknown, &c).text();
  for (const RouterInfo& info : kRouters) {
    SCOPED_TRACE(info.name);
    std::string text = info.text != nullptr ? info.text : info.name;
    const bool number = info.has(kParamK) || info.has(kParamThreshold);
    if (number) text += info.has(kParamK) ? ":3" : ":0.5";
    const bool said = info.scores != RouterScores::kTable;
    ASSERT_EQ(parse_router(text, &c).ok(), said);
    const std::string form = number ? text.substr(0, text.find(':') + 1) : text;
    EXPECT_EQ(listed.find(form) != std::string::npos, said) << listed;
    if (!said) continue;
    EXPECT_EQ(c.kind, info.kind);
    EXPECT_TRUE(!info.has(kParamK) || c.k == 3);
    EXPECT_TRUE(!info.has(kParamThreshold) || c.threshold == 0.5f);
    ASSERT_TRUE(parse_router(text + ",scale=2", &c).ok());
    EXPECT_EQ(c.scale, 2.0f);
    EXPECT_EQ(parse_router(text + ",banana=2", &c).code(), MOE_ERR_ARGUMENT);
  }
  ASSERT_TRUE(parse_router("threshold:0.5,one", &c).ok());
  EXPECT_EQ(c.weights, RouterWeights::kOne);
  EXPECT_FALSE(parse_router("threshold:0.5,one=1", &c).ok());
  EXPECT_FALSE(parse_router("threshold", &c).ok());
  EXPECT_FALSE(parse_router("topk:2.5", &c).ok());
  EXPECT_FALSE(parse_router("topk:2,max_k=3", &c).ok());
  ASSERT_TRUE(parse_router("threshold:0.5,max_k=3", &c).ok());
  EXPECT_EQ(c.max_k, 3);
  for (const char* text :
       {"topk:2,gamma=1", "topk:2,min_capacity=1", "topk:2,k=3", "threshold:0.5,threshold=0.6"}) {
    EXPECT_EQ(parse_router(text, &c).code(), MOE_ERR_ARGUMENT) << text;
  }
}

TEST(Router, TextsOfLayersAreReadBack) {
  for (const char* text :
       {"topk:3", "topk:2,renormalised", "topk:2,chosen,scale=2.5", "threshold:0.9,min_k=2,max_k=5",
        "threshold:0", "sigmoid:4,n_groups=2,top_groups=2", "cosine:1,raw,tau=0.07",
        "cosine:2,renormalised,gate=sigmoid,tau=0.3,cosine_eps=0.001",
        "cosine,raw,threshold=0.25,tau=0.5", "sparsemixer,jitter=0.02", "base"}) {
    SCOPED_TRACE(text);
    RouterConfig c;
    ASSERT_TRUE(parse_router(text, &c).ok()) << parse_router(text, &c).text();
    RouterText again;
    ASSERT_TRUE(format_router(describe_router(c, 8), &again).ok());
    EXPECT_STREQ(again.text, text);
  }
}

TEST(Router, TextsHaveNumbersWithoutExponents) {
  for (const char* text : {"",
                           "topk:10",
                           "topk:20",
                           "topk:100",
                           "topk:2000000",
                           "topk:2147483647",
                           "topk:-3",
                           "threshold:0.0001",
                           "threshold:0.00012345678",
                           "threshold:0.9",
                           "threshold:0",
                           "gamma=1.25",
                           "gamma=100",
                           "gamma=inf",
                           "gamma=250000",
                           "gamma=999999.94",
                           "gamma=1e+06",
                           "gamma=1.5e+07",
                           "gamma=3.4028235e+38",
                           "cosine,tau=100",
                           "cosine,cosine_eps=1e-05",
                           "min_capacity=1000000",
                           "threshold:0.5,min_k=10,max_k=30",
                           "resident=0.05"}) {
    SCOPED_TRACE(text);
    moe_router router{};
    ASSERT_TRUE(parse_router(text, &router).ok()) << parse_router(text, &router).text();
    RouterText again;
    ASSERT_TRUE(format_router(router, &again).ok());
    EXPECT_STREQ(again.text, text);
    EXPECT_EQ(again.n_bytes, std::strlen(text));
  }
  RouterText text;
  ASSERT_TRUE(format_router(moe_router{}, &text).ok());
  EXPECT_STREQ(text.text, "");
  moe_router router{};
  router.k = 5;
  ASSERT_TRUE(parse_router("", &router).ok());
  EXPECT_EQ(router.k, 0);
  EXPECT_EQ(router.kind, nullptr);
  for (const char* wrong :
       {"topk:2147483648", "topk:-2147483649", "gamma=3.4028236e+38", ",", "topk:2,"}) {
    EXPECT_EQ(parse_router(wrong, &router).code(), MOE_ERR_ARGUMENT) << wrong;
  }
}

// A number of moe_router that is 0 was not said; so it cannot be said.
TEST(Router, AZeroThatWouldBeADefaultIsRefused) {
  moe_router router{};
  for (const char* name : {"k", "min_k", "max_k", "scale", "n_groups", "top_groups", "tau",
                           "cosine_eps", "jitter", "gamma", "min_capacity"}) {
    for (const char* zero : {"=0", "=-0", "=0.0", "=1e-50"}) {
      const Status s = parse_router(std::string(name) + zero, &router);
      EXPECT_EQ(s.code(), MOE_ERR_RANGE) << name << zero;
      EXPECT_NE(std::strstr(s.text(), "expected a number other than 0"), nullptr) << s.text();
      EXPECT_EQ(std::strstr(s.text(), "gamma=inf means no limit") != nullptr,
                std::string(name) == "gamma");
    }
  }
  EXPECT_TRUE(parse_router("threshold:0,resident=0", &router).ok());
}

TEST(Router, EveryKindRejectsScoresThatAreNotFinite) {
  for (const RouterInfo& info : kRouters) {
    if (info.scores == RouterScores::kTable) continue;
    SCOPED_TRACE(info.name);
    for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()}) {
      std::vector<float> z = random_scores(24, 9);
      z[17] = bad;
      const Routed r = route_all(sample_config(info.kind), z, 3, 8);
      EXPECT_EQ(r.status.code(), MOE_ERR_NON_FINITE);
      EXPECT_NE(std::string(r.status.text()).find("token 2 for expert 1"), std::string::npos);
    }
  }
}

TEST(Router, SoftmaxWeightRules) {
  constexpr int kN = 50;
  const std::vector<float> z = random_scores(kN, 3);
  RouterConfig c;
  c.k = 4;
  c.scale = 2.5f;
  const Routed raw = route_all(c, z, 1, kN);
  c.weights = RouterWeights::kRenormalised;
  const Routed norm = route_all(c, z, 1, kN);
  c.weights = RouterWeights::kChosen;
  const Routed chosen = route_all(c, z, 1, kN);
  double sum = 0;
  for (size_t j = 0; j < 4; ++j) {
    const double p = exact_softmax(z.data(), kN, raw.expert[j]);
    EXPECT_NEAR(raw.weight[j], 2.5 * p, 1e-6);
    const float before = z[static_cast<size_t>(raw.expert[j == 0 ? 0 : j - 1])];
    EXPECT_GE(before, z[static_cast<size_t>(raw.expert[j])]);
    EXPECT_NEAR(norm.weight[j], chosen.weight[j], 1e-6);
    sum += norm.weight[j];
  }
  EXPECT_NEAR(sum, 2.5, 1e-6);
  c.weights = RouterWeights::kOne;
  const Routed ones = route_all(c, z, 1, kN);
  EXPECT_EQ(ones.expert, raw.expert);
  EXPECT_EQ(ones.weight, std::vector<float>(4, 2.5f));
  c.kind = RouterKind::kSigmoid;
  EXPECT_EQ(validate_router(c, kN).code(), MOE_ERR_UNSUPPORTED);
}

TEST(Router, TiesGoToTheLowerIndex) {
  RouterConfig c;
  c.k = 3;
  const Routed r = route_all(c, {1, 2, 2, 1, 2, 0}, 1, 6);
  EXPECT_EQ(r.expert, (std::vector<int32_t>{1, 2, 4}));
}

TEST(Router, ThresholdBounds) {
  const std::vector<float> z = {3, 2, 1, 0, -1, -2};
  RouterConfig c;
  c.kind = RouterKind::kThreshold;
  c.threshold = 0;
  EXPECT_EQ(route_all(c, z, 1, 6).count[0], 1);
  c.min_k = 2;
  EXPECT_EQ(route_all(c, z, 1, 6).count[0], 2);
  c.threshold = 1;
  EXPECT_EQ(route_all(c, z, 1, 6).count[0], 6);
  c.max_k = 4;
  const Routed r = route_all(c, z, 1, 6);
  EXPECT_EQ(r.count[0], 4);
  EXPECT_EQ(r.max_k, 4);
  c.weights = RouterWeights::kRenormalised;
  const Routed n = route_all(c, z, 1, 6);
  EXPECT_NEAR(std::accumulate(n.weight.begin(), n.weight.end(), 0.0f), 1, 1e-6);
}

TEST(Router, SigmoidSelectionBiasChangesTheChoiceNotTheWeight) {
  const std::vector<float> z = {2, 1, 0, -1};
  const std::vector<float> bias = {0, 0, 0, 5};
  RouterConfig c;
  c.kind = RouterKind::kSigmoid;
  c.k = 2;
  const Routed r = route_all(c, z, 1, 4, {bias.data(), nullptr});
  EXPECT_EQ(r.expert, (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(r.weight[0], sigmoid_float(-1));
  EXPECT_EQ(r.weight[1], sigmoid_float(2));
  c.weights = RouterWeights::kRenormalised;
  const Routed zero = route_all(c, {-200, -300, -200, -300}, 1, 4);
  EXPECT_EQ(zero.weight[0], 0.0f);  // no 0 / 0
}

// By the definition, in double precision.
TEST(Router, SoftmaxSelectionBiasChangesTheChoiceNotTheWeight) {
  constexpr int kN = 40;
  const std::vector<float> z = random_scores(kN, 12);
  std::vector<float> bias = random_scores(kN, 13);
  for (float& b : bias) b /= 64;  // as large as the probabilities
  std::vector<double> p;
  for (int i = 0; i < kN; ++i) p.push_back(exact_softmax(z.data(), kN, i));
  const auto key = [&](int32_t i) {
    const auto at = static_cast<size_t>(i);
    return p[at] + static_cast<double>(bias[at]);
  };
  std::vector<int32_t> best(kN);
  std::iota(best.begin(), best.end(), 0);
  std::sort(best.begin(), best.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
  best.resize(6);
  double sum = 0;
  for (const int32_t expert : best) sum += p[static_cast<size_t>(expert)];
  RouterConfig c;
  c.k = 6;
  const Routed raw = route_all(c, z, 1, kN, {bias.data(), nullptr});
  EXPECT_EQ(raw.expert, best);
  EXPECT_NE(raw.expert, route_all(c, z, 1, kN).expert);
  c.weights = RouterWeights::kRenormalised;
  const Routed norm = route_all(c, z, 1, kN, {bias.data(), nullptr});
  c.weights = RouterWeights::kChosen;
  const Routed chosen = route_all(c, z, 1, kN, {bias.data(), nullptr});
  for (size_t j = 0; j < best.size(); ++j) {
    const double exact = p[static_cast<size_t>(best[j])];
    EXPECT_NEAR(raw.weight[j], exact, 1e-6);
    EXPECT_NEAR(norm.weight[j], exact / sum, 1e-6);
    EXPECT_NEAR(chosen.weight[j], exact / sum, 1e-6);
  }
}

TEST(Router, SelectionBiasAboveAnyProbability) {
  const std::vector<float> bias = {0, 0, 0, 5};
  RouterConfig c;
  c.k = 2;
  c.weights = RouterWeights::kChosen;
  const Routed far = route_all(c, {200, 0, 0, -200}, 1, 4, {bias.data(), nullptr});
  EXPECT_EQ(far.expert, (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(far.weight, (std::vector<float>{0, 1}));  // no overflow
  c.weights = RouterWeights::kRenormalised;
  c.n_groups = 2;
  const Routed group = route_all(c, {1, 1, 0, 0}, 1, 4, {bias.data(), nullptr});
  EXPECT_EQ(group.expert, (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(group.weight, (std::vector<float>{0.5f, 0.5f}));
}

// Groups {0, 1}, {2, 3}, {4, 5}: the best expert is in one group, the best sum of two in another.
TEST(Router, ExpertsOfTheBestGroupsAlone) {
  const std::vector<float> z = {3, -3, 1, 1.5f, 2, 0.5f};
  RouterConfig c;
  c.k = 2;
  c.n_groups = 3;
  EXPECT_EQ(route_all(c, z, 1, 6).expert,
            (std::vector<int32_t>{0, 1}));  // groups ranked by their best expert
  c.top_groups = 2;
  const Routed two = route_all(c, z, 1, 6);
  EXPECT_EQ(two.expert, (std::vector<int32_t>{0, 4}));
  RouterConfig all;
  all.k = 2;
  EXPECT_EQ(two.weight, route_all(all, z, 1, 6).weight);  // weights of the softmax over all experts
  c.kind = RouterKind::kSigmoid;
  c.top_groups = 1;
  EXPECT_EQ(route_all(c, z, 1, 6).expert,
            (std::vector<int32_t>{3, 2}));  // groups ranked by the sum of their best two experts
  const std::vector<float> bias = {0, 0, 0, 0, 0.5f, 0};
  const Routed biased = route_all(c, z, 1, 6, {bias.data(), nullptr});
  EXPECT_EQ(biased.expert, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(biased.weight[0], sigmoid_float(2));
  const std::vector<float> ties = {1, 1, 1, 1, 1, 1};
  c.top_groups = 2;
  c.k = 4;
  EXPECT_EQ(route_all(c, ties, 1, 6).expert, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Router, BaseAndHash) {
  RouterConfig c;
  c.kind = RouterKind::kBase;
  const Routed b = route_all(c, {0, 3, 1}, 1, 3);
  EXPECT_EQ(b.expert[0], 1);
  EXPECT_EQ(b.weight[0], sigmoid_float(3));
  c.kind = RouterKind::kHash;
  const std::vector<int32_t> entries = {2, 0};
  const Routed h = route_all(c, {}, 2, 3, {nullptr, entries.data()});
  EXPECT_EQ(h.expert, entries);
  EXPECT_EQ(h.weight, (std::vector<float>{1, 1}));
}

TEST(Router, CosineByThresholdSelectsOnTheSoftmaxOverAll) {
  const std::vector<float> s = random_scores(12, 8);
  RouterConfig c;
  c.kind = RouterKind::kCosine;
  c.by_threshold = true;
  c.threshold = 0.9f;
  const Routed r = route_all(c, s, 1, 12);
  RouterConfig t;
  t.kind = RouterKind::kThreshold;
  t.threshold = 0.9f;
  const Routed same = route_all(t, s, 1, 12);  // tau is 1
  EXPECT_EQ(r.count, same.count);
  EXPECT_EQ(r.expert, same.expert);
  EXPECT_EQ(r.weight, same.weight);
}

}  // namespace
}  // namespace moe
