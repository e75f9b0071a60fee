// SPDX-License-Identifier: MIT
// The experts of Qwen's mixtures: a softmax router, a gated shared expert, some dense layers.
#include "src/convert/arch/qwen_experts.h"

namespace moe {
namespace {

constexpr TensorName kSharedExpert[] = {
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight"},
    {"moe.shared.router.weight", "mlp.shared_expert_gate.weight"}};

// Dense layers: those listed, and all except every decoder_sparse_step-th.
void keep_dense_layers(Decoder* d, const LayerConfig& dense) {
  const auto n_layers = static_cast<int32_t>(d->layers().size());
  const int32_t step = d->keys.integer("decoder_sparse_step", 1, 1, 1 << 16);
  std::vector<bool> is_dense(static_cast<size_t>(n_layers));
  for (const JsonNode& l : d->keys.list("mlp_only_layers")) {
    const auto index = static_cast<size_t>(l.integer(0, 1 << 16));
    if (index < is_dense.size()) is_dense[index] = true;
  }
  bool any = false;
  for (int32_t l = 0; l < n_layers; ++l) {
    const auto index = static_cast<size_t>(l);
    if (!is_dense[index] && (l + 1) % step == 0) continue;
    d->layer(index).ffn = dense.ffn;
    any = true;
  }
  if (any) d->names(mlp_names());
}

}  // namespace

void add_qwen_experts(Decoder* d, bool renormalised) {
  const LayerConfig dense = d->layer(0);
  renormalised = d->keys.boolean("norm_topk_prob", renormalised);
  d->experts("num_experts", "num_local_experts",
             d->keys.integer("moe_intermediate_size", 1, 1 << 20),
             renormalised ? RouterWeights::kRenormalised : RouterWeights::kRaw);
  d->names(moe_names());
  const int32_t shared = d->keys.integer("shared_expert_intermediate_size", 0, 0, 1 << 20);
  if (shared > 0) {
    d->names(kSharedExpert);
    for (LayerConfig& layer : d->layers()) {
      layer.ffn.moe.shared = {.d_ff = shared, .gated = true};
    }
  }
  keep_dense_layers(d, dense);
}

}  // namespace moe
