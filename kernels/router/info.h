// SPDX-License-Identifier: MIT
#pragma once
// Metadata of a router. Each router's file defines a struct NameRouter:
//
//   static constexpr RouterInfo info;
//   template <class Team>
//   static int32_t route(const RouterConfig&, const RouterInput&, const RouterScratch&,
//                        const RouterChoice&);
//
// route() selects experts for one token and returns their number (kernels/router/common.h).

#include "kernels/router/router.h"

namespace moe {

/// The scores of a router, which determine its weights.
enum class RouterScores : uint8_t {
  kLinear,  // W x: scores (n_experts, d)
  kCosine,  // cosines of proj x and the experts' embeddings: proj (d_e, d), embedding (n_experts,
            // d_e)
  kTable    // none: a table maps token ids to experts
};

/// The fields of RouterConfig that a router uses, besides scale and capacity.
enum RouterParam : uint32_t {
  kParamK = 1,
  kParamThreshold = 2,  // and min_k, max_k
  kParamWeights = 4,
  kParamChosen = 8,  // also RouterWeights::kChosen and kOne
  kParamGate = 16,
  kParamTau = 32,
  kParamToken = 64,  // normalise_token
  kParamTopkNorm = 128,
  kParamJitter = 256,
  kParamGroups = 512  // n_groups, top_groups
};

/// The part that a run-time override can change: the selection from a softmax over all experts.
enum class RouterOverride : uint8_t {
  kNone,     // no such softmax
  kSelects,  // replaced by the softmax or threshold router
  kByGate    // if the gate is the softmax: by k or, with RouterConfig::by_threshold, by threshold
};

struct RouterInput;
struct RouterScratch;
struct RouterChoice;

struct RouterInfo {
  const char* name;            // in files and configurations
  const char* text = nullptr;  // in a layer's parameters ("topk:2"); null: the name
  RouterScores scores = RouterScores::kLinear;
  bool bias = false;            // scores may have a bias
  bool selection_bias = false;  // a bias that affects only selection
  uint32_t params = 0;          // bits of RouterParam
  uint32_t required = 0;        // those without a default
  int32_t takes = 0;            // experts per token; 0: by k or threshold
  int32_t min_experts = 1;
  RouterOverride selection = RouterOverride::kNone;

  // Set by kernels/router/table.h.
  RouterKind kind = {};
  int32_t (*route)(const RouterConfig&, const RouterInput&, const RouterScratch&,
                   const RouterChoice&) = nullptr;

  constexpr bool has(RouterParam param) const { return (params & param) != 0; }
};

// A typedef, since nvcc's code for a member pointer's own declaration warns.
using RouterCount = int32_t RouterConfig::*;
using RouterNumber = float RouterConfig::*;

/// One number of RouterConfig. `count` or `number` is set.
struct RouterField {
  uint32_t param;    // routers with this parameter; 0: all
  const char* name;  // in texts and messages
  const char* key;   // in the router of a research configuration; null: none
  RouterCount count;
  RouterNumber number;
  float low, high;       // inclusive; a count with high 0: up to the number of experts
  const char* expected;  // of a number
};

inline constexpr float kLargestFloat = 3.4028235e38f;
inline constexpr float kAboveZero = 1e-45f;

inline constexpr RouterField kRouterFields[] = {
    {kParamK, "k", "k", &RouterConfig::k, nullptr, 1, 0, nullptr},
    {kParamThreshold, "threshold", "t", nullptr, &RouterConfig::threshold, 0, 1, "0..1"},
    {kParamThreshold, "min_k", "min_k", &RouterConfig::min_k, nullptr, 1, 0, nullptr},
    {kParamThreshold, "max_k", "max_k", &RouterConfig::max_k, nullptr, 0, 0, nullptr},
    {0, "scale", "scale", nullptr, &RouterConfig::scale, -kLargestFloat, kLargestFloat,
     "a finite number"},
    {kParamGroups, "n_groups", "n_groups", &RouterConfig::n_groups, nullptr, 1, 0, nullptr},
    {kParamGroups, "top_groups", "top_groups", &RouterConfig::top_groups, nullptr, 1, 0, nullptr},
    {kParamTau, "tau", "tau", nullptr, &RouterConfig::tau, kAboveZero, kLargestFloat,
     "a finite number above 0"},
    {kParamToken, "cosine_eps", nullptr, nullptr, &RouterConfig::cosine_eps, kAboveZero,
     kLargestFloat, "a finite number above 0"},
    {kParamJitter, "jitter", "jitter", nullptr, &RouterConfig::jitter, 0, kLargestFloat,
     "at least 0"},
    {0, "gamma", nullptr, nullptr, &RouterConfig::gamma, 0, kLargestFloat, "at least 0"},
    {0, "min_capacity", nullptr, &RouterConfig::min_capacity, nullptr, 0, 2147483647.0f, nullptr},
    {0, "resident", nullptr, nullptr, &RouterConfig::resident, 0, 1, "0..1"},
};

}  // namespace moe
