// SPDX-License-Identifier: MIT
// The sensitivities that were measured on SmolLM2-135M (tests/bench/results/2026-11-29-size.md),
// and those that are assumed for what it does not have.
#include "src/convert/sensitivity.h"

#include <algorithm>
#include <iterator>

namespace moe {
namespace {

struct RoleDamage {
  Role role;
  double damage;
};

// Nats if all layers are off by it. The lower rows are assumed: a latent counts like keys and
// values together, the other two like queries and outputs.
constexpr RoleDamage kRoleDamages[] = {
    {Role::kQ, 1.34},    {Role::kK, 1.12},   {Role::kV, 4.84},       {Role::kO, 1.36},
    {Role::kUp, 6.89},  // with its gate: 2.67 of that
    {Role::kDown, 6.34}, {Role::kLatent, 6}, {Role::kQLatent, 1.35}, {Role::kOutputGate, 1.35},
};
constexpr double kOtherDamage = 5;  // assumed for all other roles, those of mixers among them

constexpr double kHeadDamage = 5.88;
constexpr double kEmbeddingDamage = 0.31;  // also assumed for other parts outside layers

// The same measurement of single layers, relative to the mean of all.
constexpr double kLastLayer = 5.3, kFirstLayer = 1.2, kInnerLayer = 0.84;
// Assumed: worse guesses cost time and change no result.
constexpr double kPrediction = 0.1;

double share_of_layer(int32_t layer, int32_t n_layers) {
  if (layer >= n_layers) return kPrediction / n_layers;
  const bool last = layer == n_layers - 1;
  const double place = last ? kLastLayer : layer == 0 ? kFirstLayer : kInnerLayer;
  if (n_layers <= 1) return 1;
  return place / (kLastLayer + kFirstLayer + kInnerLayer * (n_layers - 2));
}

// The experts have a share, and the expert that all tokens use besides has the rest.
double share_of_experts(Part part, const FfnConfig& ffn) {
  const bool divided = part == Part::kExperts || part == Part::kFfn;
  const double shared = ffn.kind == FfnKind::kMoe ? ffn.moe.shared.d_ff : 0;
  if (!divided || shared == 0) return 1;
  const double routed = static_cast<double>(ffn.d_ff) * ffn.moe.router.k;
  return (part == Part::kExperts ? routed : shared) / (routed + shared);
}

}  // namespace

double sensitivity(Part part, int32_t layer, Role role, const ModelConfig& config) {
  if (layer < 0) {
    return part == Part::kHead ? kHeadDamage : kEmbeddingDamage;
  }
  const auto found = std::find_if(std::begin(kRoleDamages), std::end(kRoleDamages),
                                  [role](const RoleDamage& r) { return r.role == role; });
  const double all = found == std::end(kRoleDamages) ? kOtherDamage : found->damage;
  return all * share_of_layer(layer, config.n_main_layers()) *
         share_of_experts(part, config.layers[static_cast<size_t>(layer)].ffn);
}

// Small errors add up; those of two bits do more damage than their squares say, the more of them
// there are. Fitted to int3_k and int2_k, in one role and in all.
double grown(double squared_error) {
  constexpr double kExcess = 250;
  return squared_error * (1 + kExcess * squared_error * squared_error);
}

// The numbers give two thirds of what docs/precision.md measures for all inputs of a model.
double input_error(ActPrecision act) {
  switch (act) {
    case ActPrecision::kA8Group:
      return 0.0086 * 0.0086;
    case ActPrecision::kA8Block:
      return 0.02 * 0.02;
    case ActPrecision::kF32:
    case ActPrecision::kA8:  // the model was trained with it
      break;
  }
  return 0;
}

}  // namespace moe
