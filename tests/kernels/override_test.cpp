// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/router/table.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

TEST(Override, ThresholdOnSoftmaxKeepsTheWeightRule) {
  RouterConfig c;
  c.k = 2;
  c.weights = RouterWeights::kRenormalised;
  c.scale = 3;
  RouterConfig out;
  ASSERT_TRUE(
      override_router(c, 8, "threshold:0.9,min_k=2,max_k=6,gamma=1.25,min_capacity=4", &out).ok());
  EXPECT_EQ(out.kind, RouterKind::kThreshold);
  EXPECT_FLOAT_EQ(out.threshold, 0.9f);
  EXPECT_EQ(out.min_k, 2);
  EXPECT_EQ(out.max_k, 6);
  EXPECT_EQ(out.gamma, 1.25f);
  EXPECT_EQ(out.min_capacity, 4);
  EXPECT_EQ(out.weights, RouterWeights::kRenormalised);
  EXPECT_EQ(out.scale, 3);
}

TEST(Override, TopkOnThresholdAndCapacityAlone) {
  RouterConfig c;
  c.kind = RouterKind::kThreshold;
  c.threshold = 0.5f;
  RouterConfig out;
  ASSERT_TRUE(override_router(c, 8, "topk:4", &out).ok());
  EXPECT_EQ(out.kind, RouterKind::kSoftmax);
  EXPECT_EQ(out.k, 4);
  c.kind = RouterKind::kHash;
  ASSERT_TRUE(override_router(c, 8, "gamma=1.5e0", &out).ok());
  EXPECT_EQ(out.kind, RouterKind::kHash);
  EXPECT_EQ(out.gamma, 1.5f);
}

TEST(Override, CosineKeepsItsKindAndRule) {
  RouterConfig c;
  c.kind = RouterKind::kCosine;  // k 1: raw weights
  RouterConfig out;
  ASSERT_TRUE(override_router(c, 8, "topk:3", &out).ok());
  EXPECT_EQ(out.kind, RouterKind::kCosine);
  EXPECT_EQ(out.k, 3);
  EXPECT_EQ(out.topk_norm, 0);
  ASSERT_TRUE(override_router(c, 8, "threshold:0.25", &out).ok());
  EXPECT_TRUE(out.by_threshold);
  EXPECT_EQ(router_max_k(out, 8), 8);
  c.gate = CosineGate::kSigmoid;
  EXPECT_EQ(override_router(c, 8, "threshold:0.25", &out).code(), MOE_ERR_UNSUPPORTED);
}

TEST(Override, RoutersWithoutSoftmaxRefuse) {
  for (RouterKind kind :
       {RouterKind::kSigmoid, RouterKind::kSparsemixer, RouterKind::kHash, RouterKind::kBase}) {
    RouterConfig c;
    c.kind = kind;
    RouterConfig out;
    out.k = 77;
    EXPECT_EQ(override_router(c, 8, "topk:2", &out).code(), MOE_ERR_UNSUPPORTED);
    EXPECT_EQ(override_router(c, 8, "threshold:0.2", &out).code(), MOE_ERR_UNSUPPORTED);
    EXPECT_EQ(out.k, 77);
  }
}

TEST(Override, ResidentNeedsASoftmax) {
  RouterConfig c;
  RouterConfig out;
  EXPECT_EQ(c.resident, 0);
  for (const char* text :
       {"resident=0.25", "threshold:0.9,resident=0.25", "resident=0.25,topk:3"}) {
    ASSERT_TRUE(override_router(c, 8, text, &out).ok()) << text;
    EXPECT_EQ(out.resident, 0.25f);
  }
  c.kind = RouterKind::kCosine;
  EXPECT_TRUE(override_router(c, 8, "resident=0", &out).ok());
  EXPECT_TRUE(override_router(c, 8, "resident=1", &out).ok());
  for (const char* text : {"resident=1.01", "resident=-0.01"}) {
    const Status s = override_router(c, 8, text, &out);
    EXPECT_EQ(s.code(), MOE_ERR_RANGE) << text;
    EXPECT_NE(std::strstr(s.text(), "resident: expected 0..1, found"), nullptr) << s.text();
  }
  for (const char* text :
       {"resident", "resident=", "resident=nan", "resident:0.5", "resident=-nan"}) {
    EXPECT_EQ(override_router(c, 8, text, &out).code(), MOE_ERR_ARGUMENT) << text;
  }
  c.gate = CosineGate::kSigmoid;
  EXPECT_EQ(override_router(c, 8, "resident=0.1", &out).code(), MOE_ERR_UNSUPPORTED);
  for (RouterKind kind :
       {RouterKind::kSigmoid, RouterKind::kSparsemixer, RouterKind::kHash, RouterKind::kBase}) {
    c.kind = kind;
    const Status s = override_router(c, 8, "resident=0.1", &out);
    EXPECT_EQ(s.code(), MOE_ERR_UNSUPPORTED);
    EXPECT_NE(std::strstr(s.text(), "no softmax over all experts for 'resident'"), nullptr);
  }
}

TEST(Override, RangesAndNonsense) {
  RouterConfig c;
  RouterConfig out;
  for (const char* text :
       {"topk:0", "topk:9", "topk:2000000", "gamma=0", "gamma=-0", "gamma=1e-50", "min_capacity=0",
        "threshold:0.5,max_k=0", "threshold:1.01", "threshold:-0.1", "threshold:0.5,min_k=0",
        "threshold:0.5,max_k=9", "gamma=-1", "threshold:0.5,min_k=4,max_k=3"}) {
    EXPECT_EQ(override_router(c, 8, text, &out).code(), MOE_ERR_RANGE) << text;
  }
  for (const char* text : {",", "topk:", "topk:2.5", "topk:2,", "threshold:nan", "topk:1e",
                           "threshold:0,5", "banana:1", "topk=2", "topk:2;", "threshold:1e99",
                           "topk:99999999999999999999999999999999999999", "topk:2,min_k=1",
                           "topk:2,max_k=5", "min_k=2"}) {
    EXPECT_EQ(override_router(c, 8, text, &out).code(), MOE_ERR_ARGUMENT) << text;
  }
}

TEST(Override, WhatIsNotSaidStays) {
  RouterConfig c;
  c.k = 3;
  c.gamma = 2;
  c.min_capacity = 5;
  RouterConfig out;
  ASSERT_TRUE(override_router(c, 8, "topk,resident=0.1", &out).ok());
  EXPECT_EQ(out.k, 3);
  EXPECT_EQ(out.gamma, 2.0f);
  EXPECT_EQ(out.min_capacity, 5);
  ASSERT_TRUE(override_router(c, 8, "gamma=inf", &out).ok());
  EXPECT_EQ(out.gamma, 0.0f);  // no limit
  for (const char* text : {"scale=2", "topk:2,n_groups=2", "tau=0.5", "chosen", "gate=sigmoid",
                           "k=2", "threshold=0.5", "topk:2,threshold=0.5"}) {
    EXPECT_EQ(override_router(c, 8, text, &out).code(), MOE_ERR_ARGUMENT) << text;
  }
}

// A model's router is accepted as it is described, and changes nothing.
void expect_round_trip(const RouterConfig& c, const moe_router& router) {
  RouterConfig out;
  const Status s = override_router(c, 8, router, &out);
  ASSERT_TRUE(s.ok()) << s.text();
  EXPECT_EQ(out.kind, c.kind);
  EXPECT_EQ(out.weights, c.weights);
  EXPECT_EQ(out.gate, c.gate);
  EXPECT_EQ(out.by_threshold, c.by_threshold);
  EXPECT_EQ(out.topk_norm, c.topk_norm);
  for (const RouterField& f : kRouterFields) {
    EXPECT_TRUE(f.count == nullptr || out.*f.count == c.*f.count) << f.name;
    EXPECT_TRUE(f.number == nullptr || out.*f.number == c.*f.number) << f.name;
  }
}

TEST(Override, TheDescriptionOfEveryRouterChangesNothing) {
  std::vector<RouterConfig> configs;
  for (const RouterInfo& info : kRouters) {
    RouterConfig c;
    c.kind = info.kind;
    configs.push_back(c);
    c.k = 3;
    c.threshold = 0.7f;
    c.min_k = 2;
    c.max_k = 5;
    c.scale = 2.5f;
    c.n_groups = info.has(kParamGroups) ? 4 : 1;
    c.top_groups = info.has(kParamGroups) ? 2 : 1;
    c.tau = 0.07f;
    c.cosine_eps = 1e-5f;
    c.jitter = 0.02f;
    c.gamma = 1.25f;
    c.min_capacity = 4;
    if (info.has(kParamWeights)) c.weights = RouterWeights::kRenormalised;
    configs.push_back(c);
    c.gate = CosineGate::kSigmoid;
    configs.push_back(c);
    if (info.selection != RouterOverride::kByGate) continue;
    c.gate = CosineGate::kSoftmax;
    c.by_threshold = true;
    configs.push_back(c);
  }
  for (const RouterConfig& c : configs) {
    RouterText text;
    const moe_router own = describe_router(c, 8);
    ASSERT_TRUE(format_router(own, &text).ok());
    SCOPED_TRACE(text.text);
    ASSERT_TRUE(validate_router(c, 8).ok()) << validate_router(c, 8).text();
    expect_round_trip(c, own);
    moe_router again{};
    ASSERT_TRUE(parse_router(text.text, &again).ok());
    expect_round_trip(c, again);
    expect_round_trip(c, moe_router{});
  }
}

TEST(Override, ADescriptionThatIsChangedIsRefused) {
  RouterConfig c;
  c.kind = RouterKind::kSigmoid;
  c.k = 2;
  RouterConfig out;
  const auto refuses = [&](const moe_router& r, const char* words) {
    const Status s = override_router(c, 8, r, &out);
    EXPECT_EQ(s.code(), MOE_ERR_ARGUMENT);
    EXPECT_NE(std::strstr(s.text(), words), nullptr) << s.text();
  };
  const moe_router own = describe_router(c, 8);
  moe_router r = own;
  r.scale = 2;
  refuses(r, "scale is a part of the model");
  r = own;
  r.weights = "renormalised";
  refuses(r, "weights is a part of the model: expected raw, found 'renormalised'");
  r = own;
  r.gate = "softmax";
  refuses(r, "gate is a part of the model: expected none, found 'softmax'");
  r = own;
  r.k = 3;
  refuses(r, "k needs a kind that has it");
  r = own;
  r.kind = "base";
  refuses(r, "expected one of topk:K, threshold:T, found 'base'");
}

TEST(ValidateRouter, NamesTheField) {
  RouterConfig c;
  c.k = 9;
  EXPECT_STREQ(validate_router(c, 8).text(), "router: k: expected 1..8, found 9");
  c = {};
  c.kind = RouterKind::kThreshold;
  c.threshold = std::nanf("");
  EXPECT_EQ(validate_router(c, 8).code(), MOE_ERR_RANGE);
  c = {};
  c.kind = RouterKind::kCosine;
  for (float tau : {0.0f, -1.0f, std::nanf(""), HUGE_VALF}) {
    c.tau = tau;
    EXPECT_EQ(validate_router(c, 8).code(), MOE_ERR_RANGE);
  }
  c = {};
  c.kind = RouterKind::kSparsemixer;
  EXPECT_EQ(validate_router(c, 1).code(), MOE_ERR_RANGE);
  EXPECT_TRUE(validate_router(c, 2).ok());
}

TEST(Override, AThresholdDoesNotDropGroups) {
  RouterConfig c;
  c.kind = RouterKind::kSoftmax;
  c.k = 2;
  c.n_groups = 4;
  c.top_groups = 2;
  RouterConfig out;
  EXPECT_TRUE(override_router(c, 8, "topk:3", &out).ok());
  EXPECT_EQ(out.n_groups, 4);
  const Status refused = override_router(c, 8, "threshold:0.5", &out);
  EXPECT_EQ(refused.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_STREQ(refused.text(),
               "router override: threshold does not select from the best of 4 groups, as this "
               "model's router does");
}

}  // namespace
}  // namespace moe
