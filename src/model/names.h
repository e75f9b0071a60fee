// SPDX-License-Identifier: MIT
#pragma once
// Names of configuration values: the same in model files, the research layout and the command line.
// Names of routers are in kernels/router.

#include "formats/moe/names.h"
#include "kernels/router/names.h"
#include "src/model/config.h"

namespace moe {

inline constexpr Named<NormKind> kNormKinds[] = {
    {NormKind::kNone, "none"},
    {NormKind::kRms, "rms"},
    {NormKind::kLayer, "layer"},
};
static_assert(in_order(kNormKinds));

inline constexpr Named<PositionKind> kPositionKinds[] = {
    {PositionKind::kNone, "none"},
    {PositionKind::kRope, "rope"},
    {PositionKind::kLearned, "learned"},
};
static_assert(in_order(kPositionKinds));

inline constexpr Named<HeadKind> kHeadKinds[] = {
    {HeadKind::kTokens, "tokens"}, {HeadKind::kClasses, "classes"}, {HeadKind::kTags, "tags"},
    {HeadKind::kSpan, "span"},     {HeadKind::kNone, "none"},
};
static_assert(in_order(kHeadKinds));

inline constexpr Named<Pooling> kPoolings[] = {
    {Pooling::kMean, "mean"},
    {Pooling::kFirst, "first"},
    {Pooling::kLast, "last"},
};
static_assert(in_order(kPoolings));

inline constexpr Named<FfnKind> kFfnKinds[] = {
    {FfnKind::kDense, "dense"},
    {FfnKind::kMoe, "moe"},
};
static_assert(in_order(kFfnKinds));

inline constexpr Named<QkNorm> kQkNorms[] = {
    {QkNorm::kNone, "none"},
    {QkNorm::kHead, "head"},
    {QkNorm::kWhole, "whole"},
};
static_assert(in_order(kQkNorms));

inline constexpr Named<Activation> kActivations[] = {
#define MOE_ACTIVATION(value, name, function) {Activation::value, name},
    MOE_ACTIVATIONS(MOE_ACTIVATION)
#undef MOE_ACTIVATION
};

inline constexpr Named<RopeKind> kRopeKinds[] = {
    {RopeKind::kNone, "none"},
    {RopeKind::kHalf, "half"},
    {RopeKind::kInterleaved, "interleaved"},
};
static_assert(in_order(kRopeKinds));

inline constexpr Named<RopeScaling> kRopeScalings[] = {
    {RopeScaling::kNone, "none"},         {RopeScaling::kLinear, "linear"},
    {RopeScaling::kLlama3, "llama3"},     {RopeScaling::kYarn, "yarn"},
    {RopeScaling::kLongrope, "longrope"}, {RopeScaling::kProportional, "proportional"},
};
static_assert(in_order(kRopeScalings));

inline constexpr Named<RouterWeights> kRouterWeights[] = {
    {RouterWeights::kRaw, kRouterWeightNames[0]},
    {RouterWeights::kRenormalised, kRouterWeightNames[1]},
    {RouterWeights::kChosen, kRouterWeightNames[2]},
    {RouterWeights::kOne, kRouterWeightNames[3]},
};
static_assert(in_order(kRouterWeights));

inline constexpr Named<CosineGate> kCosineGates[] = {
    {CosineGate::kSoftmax, kCosineGateNames[0]},
    {CosineGate::kSigmoid, kCosineGateNames[1]},
};
static_assert(in_order(kCosineGates));

inline constexpr Named<CapacityOrder> kCapacityOrders[] = {
    {CapacityOrder::kPriority, "priority"},
    {CapacityOrder::kArrival, "arrival"},
};
static_assert(in_order(kCapacityOrders));

}  // namespace moe
