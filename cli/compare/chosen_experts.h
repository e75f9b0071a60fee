// SPDX-License-Identifier: MIT
#pragma once
// The experts that two models choose for the same tokens.

#include <cstdint>
#include <exception>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

/// Records the choices of a session, layer by layer, in the order of its tokens.
class ChosenExperts {
 public:
  /// Records nothing if the model is dense or on a GPU, which shows no choices.
  ChosenExperts(const moe_model* model, moe_session* session);
  ChosenExperts(const ChosenExperts&) = delete;
  ChosenExperts& operator=(const ChosenExperts&) = delete;
  ~ChosenExperts();

  bool recording() const { return recording_; }
  /// Throws what recording threw.
  void rethrow() const;
  void clear();

  /// The experts of a token, or sub-token, in ascending order.
  using Experts = std::vector<int32_t>;
  /// Empty for a dense layer.
  const std::vector<Experts>& of_layer(size_t layer) const { return layers_[layer]; }
  /// 0 for a dense layer.
  const std::vector<int32_t>& n_experts() const { return n_experts_; }

 private:
  static bool take(void* user, moe_routing_choices* choices);
  void add(const moe_routing_choices& choices);

  moe_session* session_;
  bool recording_ = false;
  std::vector<int32_t> n_experts_;            // by layer
  std::vector<std::vector<Experts>> layers_;  // by layer and token
  std::exception_ptr thrown_;
};

/// The choices that two models share, summed over windows.
class SharedChoices {
 public:
  /// Sums stay empty if the models' layers have different numbers of experts.
  SharedChoices(const ChosenExperts& reference, const ChosenExperts& model);
  /// Adds the choices that both recorded since they were cleared, and clears both.
  void add(ChosenExperts& reference, ChosenExperts& model);

  struct Layer {
    int32_t layer = 0;
    uint64_t n = 0;       // tokens
    double shared = 0;    // mean share of a token's experts that both chose
    double all_same = 0;  // share of tokens with the same set of experts
  };
  /// The MoE layers in order.
  std::vector<Layer> layers() const;

 private:
  std::vector<Layer> sums_;  // sums in place of means
};

}  // namespace moe_cli
