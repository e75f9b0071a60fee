// SPDX-License-Identifier: MIT
#pragma once
// Routers as data. Each kind is one file (kernels/router/<name>.h) and one line in list.h.

#include <cstdint>

namespace moe {

enum class RouterKind : uint8_t {
#define MOE_ROUTER(Name, header) k##Name,
#include "kernels/router/list.h"
#undef MOE_ROUTER
};
/// How the weight of a selected expert is computed.
enum class RouterWeights : uint8_t {
  kRaw,           // the probability itself
  kRenormalised,  // divided by the sum over the selected
  kChosen,        // softmax over the selected only
  kOne            // always 1: parts of one network, whose outputs are summed
};
enum class CosineGate : uint8_t { kSoftmax, kSigmoid };
enum class CapacityOrder : uint8_t { kPriority, kArrival };

/// One router's parameters, from the file or a run-time override.
struct RouterConfig {
  RouterKind kind = RouterKind::kSoftmax;
  RouterWeights weights = RouterWeights::kRaw;
  int32_t k = 1;              // top-k kinds; 1..n_experts
  float threshold = 0;        // threshold kind; [0, 1]
  bool by_threshold = false;  // cosine with the softmax gate: select by `threshold` instead of k
  int32_t min_k = 1;          // threshold kind
  int32_t max_k = 0;          // threshold kind; 0: n_experts
  float scale = 1;            // final factor of the weights
  int32_t n_groups = 1;       // softmax and sigmoid: number of groups of neighbouring experts
  int32_t top_groups = 1;     // number of best groups to select from
  CosineGate gate = CosineGate::kSoftmax;
  float tau = 1;                // cosine temperature, > 0 (floored at 1e-4)
  float cosine_eps = 1e-4f;     // floor of the norms
  bool normalise_token = true;  // cosine; off in torchscale's code
  int8_t topk_norm = -1;        // cosine, k > 1: -1 default of the gate, 0 raw, 1 renormalised
  float jitter = 0.01f;         // sparsemixer
  float gamma = 0;              // capacity factor; 0: no capacity
  int32_t min_capacity = 0;
  CapacityOrder order = CapacityOrder::kPriority;
  // Routers with a softmax over all experts: skip an expert up to this probability if loading it
  // would evict another; 0: never.
  float resident = 0;

  bool operator==(const RouterConfig&) const = default;
};

/// Choices of every (sub-)token. A slot beyond count, or refused by capacity, has weight 0 and kept
/// = 0 but retains its expert number.
struct Routing {
  int32_t n_tokens = 0;  // rows * n_subheads
  int32_t max_k = 0;
  int32_t* expert = nullptr;  // (n_tokens, max_k), best first
  float* weight = nullptr;    // (n_tokens, max_k)
  uint8_t* kept = nullptr;    // (n_tokens, max_k)
  int32_t* count = nullptr;   // (n_tokens): experts selected
  float* scores = nullptr;    // (n_tokens, n_experts) logits or cosines, or null
};

}  // namespace moe
