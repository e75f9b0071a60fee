// SPDX-License-Identifier: MIT
#pragma once
// A single MoE layer as a kernel for other runtimes: takes weights from memory and maps (n,
// d_model) to (n, d_model). No residual, no norm before it.

#include "kernels/device.h"
#include "src/base/array.h"

namespace moe {

/// One expert's float weights, row-major (out, in). A plain FFN has no gate. Biases may be null.
struct ExpertWeights {
  const float* gate = nullptr;       // (d_ff, d_in)
  const float* up = nullptr;         // (d_ff, d_in)
  const float* down = nullptr;       // (d_in, d_ff)
  const float* gate_bias = nullptr;  // (d_ff)
  const float* up_bias = nullptr;    // (d_ff)
  const float* down_bias = nullptr;  // (d_in)
  const float* sub_norm = nullptr;   // (d_ff): SubLN (RMS) before down
};

/// create() copies and packs everything. d_in is d_model / n_subheads.
struct LayerSpec {
  int32_t d_model = 0;
  int32_t d_ff = 0;
  int32_t n_experts = 0;
  int32_t n_subheads = 1;  // more than 1: MH-MoE
  int32_t max_rows = 256;  // tokens computed at once; longer calls take several passes
  ActivationConfig act;
  RouterConfig router;
  FormatId format = FormatId::kF32;             // of experts, shared expert, head and merge
  ActPrecision precision = ActPrecision::kF32;  // kF32 with the float formats
  float norm_eps = 1e-5f;                       // of sub norms
  std::span<const ExpertWeights> experts;       // n_experts of them
  const float* router_weight =
      nullptr;  // (n_experts, d_in); cosine: expert embeddings (n_experts, d_e)
  const float* router_bias = nullptr;       // (n_experts); sigmoid: the selection bias
  const float* router_proj = nullptr;       // cosine: (d_e, d_in)
  const float* router_proj_bias = nullptr;  // cosine: (d_e)
  const int32_t* router_table = nullptr;    // hash: (vocab_size)
  int32_t d_e = 0;                          // cosine
  int32_t vocab_size = 0;                   // hash
  int32_t shared_d_ff = 0;                  // 0: no shared expert
  ExpertWeights shared;                     // on d_model
  const float* shared_gate = nullptr;       // (d_model): scales the shared expert by sigmoid(x . g)
  const float* head = nullptr;              // MH-MoE: (d_model, d_model), or null
  const float* head_bias = nullptr;
  const float* merge = nullptr;  // the same
  const float* merge_bias = nullptr;
};

/// Routing output of a forward call; null members are not written. Host memory for n * n_subheads
/// (sub-)tokens.
struct LayerRouting {
  int32_t* expert = nullptr;  // (tokens, max_k)
  float* weight = nullptr;    // (tokens, max_k)
  uint8_t* kept = nullptr;    // (tokens, max_k)
  int32_t* count = nullptr;   // (tokens)
  float* scores = nullptr;    // (tokens, n_experts)
};

struct LayerParts;

/// One thread at a time; a concurrent call gets MOE_ERR_STATE.
class MoeLayer final {
 public:
  /// Checks every size, pointer and number (MOE_ERR_SHAPE, MOE_ERR_RANGE, MOE_ERR_ARGUMENT,
  /// MOE_ERR_NON_FINITE, naming the field), then packs. `device` must outlive the layer.
  static Result<Box<MoeLayer>> create(Device& device, const LayerSpec& spec,
                                      const Allocator& allocator);
  ~MoeLayer();
  MoeLayer(const MoeLayer&) = delete;
  MoeLayer& operator=(const MoeLayer&) = delete;

  int32_t d_model() const;
  int32_t max_routed() const;  // maximum experts per (sub-)token

  /// x, y: host memory (n, d_model), may be the same. tokens: ids for the hash router, otherwise
  /// null. Bit-identical for any thread count and any split of the rows, unless a capacity is set:
  /// then n must not exceed max_rows. MOE_ERR_NON_FINITE if x contains NaN or infinity.
  Status forward(std::span<const float> x, const int32_t* tokens, float* y,
                 const LayerRouting* routing = nullptr);

  /// For create() alone.
  explicit MoeLayer(Box<LayerParts> parts);

 private:
  Box<LayerParts> parts_;
};

}  // namespace moe
