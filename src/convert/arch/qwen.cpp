// SPDX-License-Identifier: MIT
// Qwen2, Qwen3 and their mixtures of experts.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::qwen {
namespace {

constexpr TensorName kSharedExpert[] = {
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight"},
    {"moe.shared.router.weight", "mlp.shared_expert_gate.weight"}};

// The window of sliding layers; 0 if the model does not use windows.
int32_t used_window(Decoder* d) {
  const int32_t positions = d->sliding_window(4096);
  return d->keys.boolean("use_sliding_window", false) ? positions : 0;
}

// Dense Qwen: the list of layer types, or all layers from max_window_layers on.
void add_windows(Decoder* d) {
  const int32_t positions = used_window(d);
  const int32_t first = d->keys.integer("max_window_layers", 28, 0, 1 << 16);
  if (d->window_by_layer_type(positions)) return;
  for (size_t l = static_cast<size_t>(first); l < d->layers().size(); ++l) {
    d->layer(l).attention.window = positions;
  }
}

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

void add_experts(Decoder* d) {
  const LayerConfig dense = d->layer(0);
  const bool renormalised = d->keys.boolean("norm_topk_prob", false);
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

Imported import_qwen2(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.names(qkv_bias_names());
  add_windows(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_qwen3(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.qk_norm(QkNorm::kHead);
  d.attention_bias("attention_bias", false);
  add_windows(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_qwen2_moe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  if (d.keys.boolean("qkv_bias", true)) d.names(qkv_bias_names());
  add_experts(&d);
  const int32_t positions = used_window(&d);
  d.keys.ignore({"max_window_layers"});
  if (!d.window_by_layer_type(positions) && positions > 0) {
    fail_value(d.keys.node("use_sliding_window"), "without layer_types only false is");
  }
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_qwen3_moe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.qk_norm(QkNorm::kHead);
  d.keys.require("use_qk_norm", true);
  d.attention_bias("attention_bias", false);
  add_experts(&d);
  d.window(used_window(&d));
  d.keys.ignore({"max_window_layers"});  // all layers have a window, or none
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"qwen2", import_qwen2},
                                       {"qwen3", import_qwen3},
                                       {"qwen2_moe", import_qwen2_moe},
                                       {"qwen3_moe", import_qwen3_moe}};
  return kRows;
}

}  // namespace moe::arch::qwen
