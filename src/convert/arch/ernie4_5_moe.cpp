// SPDX-License-Identifier: MIT
// ERNIE 4.5 (Baidu 2025): experts are selected by the softmax plus a bias that does not affect
// weights, with shared experts; neighbouring pairs are rotated.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::ernie4_5_moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr Place kOneRow = {.transposed = true};  // (1, n_experts)

constexpr TensorName kNames[] = {
    {"moe.router.selection_bias", "mlp.moe_statics.e_score_correction_bias", kOneRow},
    {"moe.router.selection_bias", "mlp.gate.moe_statics.e_score_correction_bias", kOneRow},
    {"moe.shared.gate.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_experts.down_proj.weight"}};

RenamedConfig with_defaults(const JsonNode& config) {
  RenamedConfig c(config);
  c.fallback("tie_word_embeddings", true);
  return c;
}

// The router's weights are divided by their sum, or by this if it is larger.
void check_smallest_sum(ConfigKeys* keys) {
  if (keys->number("moe_norm_min", 1e-12f) <= 1e-12f) return;
  fail_value(keys->node("moe_norm_min"), "at most 1e-12 is");
}

void add_experts(Decoder* d) {
  ConfigKeys& keys = d->keys;
  const FfnConfig dense = d->layer(0).ffn;
  const auto n_layers = static_cast<int32_t>(d->layers().size());
  const int32_t width = keys.integer("moe_intermediate_size", 1, kMaxWidth);
  const int32_t n_shared = keys.integer("moe_num_shared_experts", 2, 0, kMaxWidth / width);
  const int32_t first = keys.integer("moe_layer_start_index", 1, 0, 1 << 16);
  const int32_t end = keys.integer("moe_layer_end_index", -1, -1, 1 << 16);
  const int32_t last = end < 0 ? n_layers - 1 : end;
  const int32_t interval = keys.integer("moe_layer_interval", 1, 1, 1 << 16);
  d->experts("moe_num_experts", "num_experts", width, RouterWeights::kRenormalised, "moe_k");
  for (int32_t l = 0; l < n_layers; ++l) {
    FfnConfig& ffn = d->layer(static_cast<size_t>(l)).ffn;
    ffn.moe.shared = {.d_ff = n_shared * width};
    if (l < first || l > last || (l + 1) % interval != 0) ffn = dense;
  }
}

// Layers for multi-token prediction, which are outside the other layers.
void skip_predictions(const Checkpoint& checkpoint, Imported* out) {
  const std::string_view layer = "model.mtp_emb_norm.";  // one tensor in each
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.starts_with(layer)) ++out->n_skipped_layers;
  }
}

Imported import_ernie(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig whole = with_defaults(config);
  const JsonNode node = whole.node();
  Decoder d(node, checkpoint, 500000);
  d.names(mlp_names());
  d.names(moe_names());
  d.names(kNames);
  d.keys.require("use_bias", false);
  d.keys.require("moe_use_aux_free", true);
  d.keys.require("compression_ratio", 1.0);  // of positions
  if (d.keys.has("moe_gate")) (void)d.keys.node("moe_gate").choice({"topk", "topk_fused"});
  d.keys.ignore({"moe_capacity", "num_nextn_predict_layers"});
  check_smallest_sum(&d.keys);
  add_experts(&d);
  for (LayerConfig& layer : d.layers()) layer.attention.rope.kind = RopeKind::kInterleaved;
  d.ignore_tensors("model.mtp_*");
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  skip_predictions(checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"ernie4_5_moe", import_ernie}};
  return kRows;
}

}  // namespace moe::arch::ernie4_5_moe
