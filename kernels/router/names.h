// SPDX-License-Identifier: MIT
#pragma once
// Names of a router's rules, in the order of their enums.

#include "kernels/router/router.h"

namespace moe {

inline constexpr const char* kRouterWeightNames[] = {"raw", "renormalised", "chosen", "one"};
static_assert(static_cast<int>(RouterWeights::kOne) == 3);

inline constexpr const char* kCosineGateNames[] = {"softmax", "sigmoid"};
static_assert(static_cast<int>(CosineGate::kSigmoid) == 1);

}  // namespace moe
