// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <random>

#include "tests/kernels/route_helper.h"

namespace moe {
namespace {

TEST(Capacity, Formula) {
  EXPECT_EQ(capacity_of(10, 3, 1.2f, 0),
            4);  // 1.2f is slightly above 1.2; the result must still be 4
  EXPECT_EQ(capacity_of(8, 8, 0.5, 0), 1);
  EXPECT_EQ(capacity_of(6, 4, 1.0, 4), 4);
  EXPECT_EQ(capacity_of(3, 2, 10.0, 0), 3);
  EXPECT_EQ(capacity_of(5, 4, 0, 4), -1);
  EXPECT_EQ(capacity_of(5, 4, 1e-30, 2), 2);  // min_capacity decides
  EXPECT_EQ(capacity_of(1 << 30, 1, 1e30, 0), 1 << 30);
}

TEST(Capacity, PriorityServesRankThenProbabilityThenToken) {
  // Expert 0 is the first choice of tokens 1 and 2 and the second choice of token 0.
  const std::vector<float> z = {1.0f, 1.1f, -9, 0.5f, 0, 0.4f, 2, 0, 0};
  RouterConfig c;
  c.k = 2;
  c.gamma = 1e-30f;
  c.min_capacity = 1;
  const Routed r = route_all(c, z, 3, 3);
  EXPECT_EQ(r.kept[1], 0);  // token 0, second choice
  EXPECT_EQ(r.kept[2], 0);  // token 1, first choice of smaller probability
  EXPECT_EQ(r.kept[4], 1);  // token 2
  EXPECT_EQ(r.weight[2], 0);
  EXPECT_EQ(r.expert[2], 0);  // a refused slot keeps its expert
  c.order = CapacityOrder::kArrival;
  const Routed a = route_all(c, z, 3, 3);
  EXPECT_EQ(a.kept[2], 1);
  EXPECT_EQ(a.kept[4], 0);
}

TEST(Capacity, EveryExpertServesTheMinimumOfRequestsAndCapacity) {
  std::mt19937 rng(4);
  std::normal_distribution<float> d;
  for (CapacityOrder order : {CapacityOrder::kPriority, CapacityOrder::kArrival}) {
    for (float gamma : {0.3f, 1.0f, 2.0f}) {
      std::vector<float> z(64 * 7);
      for (float& x : z) x = d(rng);
      RouterConfig c;
      c.kind = RouterKind::kThreshold;
      c.threshold = 0.7f;
      c.gamma = gamma;
      c.order = order;
      const Routed r = route_all(c, z, 64, 7);
      ASSERT_TRUE(r.status.ok());
      const int capacity = capacity_of(64, 7, gamma, 0);
      std::vector<int> served(7);
      std::vector<int> asked(7);
      for (size_t t = 0; t < 64; ++t) {
        for (size_t j = 0; j < static_cast<size_t>(r.count[t]); ++j) {
          const auto e = static_cast<size_t>(r.expert[t * 7 + j]);
          ++asked[e];
          served[e] += r.kept[t * 7 + j];
        }
      }
      for (size_t e = 0; e < 7; ++e) EXPECT_EQ(served[e], std::min(asked[e], capacity));
    }
  }
}

}  // namespace
}  // namespace moe
