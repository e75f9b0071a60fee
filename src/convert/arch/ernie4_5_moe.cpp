// SPDX-License-Identifier: MIT
// ERNIE 4.5 (Baidu 2025): experts are selected by the softmax plus a bias that does not affect
// weights, with shared experts; neighbouring pairs are rotated.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::ernie4_5_moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxPredictions = 64;
constexpr Place kOneRow = {.transposed = true};  // (1, n_experts)

constexpr TensorName kNames[] = {
    {"moe.router.selection_bias", "mlp.moe_statics.e_score_correction_bias", kOneRow},
    {"moe.router.selection_bias", "mlp.gate.moe_statics.e_score_correction_bias", kOneRow},
    {"moe.shared.gate.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_experts.down_proj.weight"}};

// These are the names of the first layer that predicts further tokens. ERNIE's training code gives
// it hidden states before the model's norm, and norms its results by that norm; servers that leave
// out the one or the other run the layer otherwise than it was trained.
constexpr TensorName kPrediction[] = {
    {"prediction.next_norm.weight", "model.mtp_emb_norm.0.weight"},
    {"prediction.next.weight", "model.mtp_linear_proj.0.weight", {.col_parts = 2}},
    {"prediction.hidden_norm.weight", "model.mtp_hidden_norm.0.weight"},
    {"prediction.hidden.weight", "model.mtp_linear_proj.0.weight", {.col_parts = 2, .col_part = 1}},
    {"prediction.norm.weight", "model.norm.weight"}};

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

constexpr const char* kPredictionParts[] = {"block", "emb_norm", "hidden_norm", "linear_proj"};

std::string prediction_part(const char* part, int32_t layer) {
  return "model.mtp_" + std::string(part) + "." + std::to_string(layer) + ".";
}

bool has_prediction(const Checkpoint& checkpoint, int32_t layer) {
  for (const char* part : kPredictionParts) {
    if (has_tensors(checkpoint, prediction_part(part, layer))) return true;
  }
  return false;
}

// The layers that predict further tokens are outside the others, and dense. `like`: another dense
// layer.
void add_predictions(const LayerConfig& like, const Checkpoint& checkpoint, Decoder* d) {
  const bool first = has_prediction(checkpoint, 0);
  if (first) {
    d->add_prediction(like, {.layer = "model.mtp_block.0.",
                             .names = kPrediction,
                             .tensors = {"model.mtp_block.0.*", "model.mtp_emb_norm.0.*",
                                         "model.mtp_hidden_norm.0.*", "model.mtp_linear_proj.0.*"},
                             .raw = true});
  }
  for (int32_t l = first ? 1 : 0; l < kMaxPredictions; ++l) {
    for (const char* part : kPredictionParts) {
      d->ignore_tensors((prediction_part(part, l) + "*").c_str());
    }
    if (has_prediction(checkpoint, l)) d->skip_layers(1);
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
  for (LayerConfig& layer : d.layers()) layer.attention.rope.kind = RopeKind::kInterleaved;
  const LayerConfig dense = d.layer(0);
  add_experts(&d);
  add_predictions(dense, checkpoint, &d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"ernie4_5_moe", import_ernie}};
  return kRows;
}

}  // namespace moe::arch::ernie4_5_moe
