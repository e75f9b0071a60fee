// SPDX-License-Identifier: MIT
// GLM-4.5 and its successors, and dots.llm1 (Huo et al. 2025): experts are selected by the sigmoid
// of their score plus a bias that does not affect weights, as in DeepSeek-V3 (2024, section 2.1.2),
// with shared experts.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::glm4_moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

constexpr TensorName kNames[] = {
    {"moe.router.selection_bias", "mlp.gate.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.gate.exp_probs_b.bias"},  // GGUF's
    {"moe.shared.gate.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_experts.down_proj.weight"},
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight"}};

// `n_dense`: layers without experts if no key says how many.
void add_experts(Decoder* d, int32_t n_dense, bool renormalised) {
  const FfnConfig dense = d->layer(0).ffn;
  d->keys.require("n_group", 1);
  d->keys.require("topk_group", 1);
  const int32_t width = d->keys.integer("moe_intermediate_size", 1, kMaxWidth);
  const int32_t n_shared = d->keys.integer("n_shared_experts", 1, 0, kMaxWidth / width);
  const auto first =
      static_cast<size_t>(d->keys.integer("first_k_dense_replace", n_dense, 0, 1 << 16));
  const float scale = d->keys.number("routed_scaling_factor", 1);
  d->experts("n_routed_experts", "num_local_experts", width,
             renormalised ? RouterWeights::kRenormalised : RouterWeights::kRaw);
  for (size_t l = 0; l < d->layers().size(); ++l) {
    FfnConfig& ffn = d->layer(l).ffn;
    ffn.moe.router.kind = RouterKind::kSigmoid;
    ffn.moe.router.scale = scale;
    ffn.moe.shared = {.d_ff = n_shared * width};
    if (l < first) ffn = dense;
  }
}

// By default half of a head is rotated.
bool says_rotated_part(const JsonNode& config) {
  const char* const key = "partial_rotary_factor";
  if (config.has(key)) return true;
  for (const char* rope : {"rope_parameters", "rope_scaling"}) {
    if (config.has(rope) && config.at(rope).has(key)) return true;
  }
  return false;
}

Imported import_glm4_moe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 10000);
  d.names(mlp_names());
  d.names(moe_names());
  d.names(kNames);
  if (d.keys.boolean("attention_bias", false)) d.names(qkv_bias_names());
  if (d.keys.boolean("use_qk_norm", false)) d.qk_norm(QkNorm::kHead);
  if (!says_rotated_part(config)) {
    for (LayerConfig& layer : d.layers()) layer.attention.rope.dims /= 2;
  }
  add_experts(&d, 1, d.keys.boolean("norm_topk_prob", true));
  d.prediction_layers(1);
  d.quantization(Quantization::kNone);
  return d.finish();
}

// As in dense Qwen3: the list of layer types, or all layers from max_window_layers on.
void add_windows(Decoder* d) {
  const int32_t positions = d->sliding_window(4096);
  const int32_t first = d->keys.integer("max_window_layers", 62, 0, 1 << 16);
  if (d->window_by_layer_type(positions)) return;
  for (size_t l = static_cast<size_t>(first); l < d->layers().size(); ++l) {
    d->layer(l).attention.window = positions;
  }
}

Imported import_dots1(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 10000);
  d.names(mlp_names());
  d.names(moe_names());
  d.names(kNames);
  d.attention_bias("attention_bias", false);
  d.qk_norm(QkNorm::kHead);
  add_windows(&d);
  // Published files call the sigmoid by the name of the selection.
  if (d.keys.has("scoring_func")) {
    (void)d.keys.node("scoring_func").choice({"sigmoid", "noaux_tc"});
  }
  d.keys.require("topk_method", "noaux_tc");
  d.keys.require("moe_layer_freq", 1);
  add_experts(&d, 0, d.keys.boolean("norm_topk_prob", false));
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"glm4_moe", import_glm4_moe}, {"dots1", import_dots1}};
  return kRows;
}

}  // namespace moe::arch::glm4_moe
