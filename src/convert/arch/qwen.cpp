// SPDX-License-Identifier: MIT
// Qwen2, Qwen3 and their mixtures of experts, and MiMo (Xiaomi 2025), a Qwen2 with layers that
// predict further tokens.

#include "formats/import/failure.h"
#include "src/convert/arch/qwen_experts.h"

namespace moe::arch::qwen {
namespace {

// These are the names of the first layer that predicts further tokens. The hidden state, which
// Xiaomi's code gives it before the final norm, comes first in its matrix.
constexpr TensorName kMimoPrediction[] = {
    {"prediction.next_norm.weight", "model.mtp_layers.0.token_layernorm.weight"},
    {"prediction.next.weight",
     "model.mtp_layers.0.input_proj.weight",
     {.col_parts = 2, .col_part = 1}},
    {"prediction.hidden_norm.weight", "model.mtp_layers.0.hidden_layernorm.weight"},
    {"prediction.hidden.weight", "model.mtp_layers.0.input_proj.weight", {.col_parts = 2}},
    {"prediction.norm.weight", "model.mtp_layers.0.final_layernorm.weight"}};

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

Imported import_qwen2(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.names(qkv_bias_names());
  add_windows(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

void add_mimo_predictions(Decoder* d, const Checkpoint& checkpoint) {
  const std::string prefix = "model.mtp_layers.";
  const int32_t n = d->keys.integer("num_nextn_predict_layers", 0, 0, 64);
  const std::string all = prefix + "*";
  if (!has_tensors(checkpoint, prefix)) return;
  if (n == 0 || !has_tensors(checkpoint, prefix + "0.")) {
    d->keys.warn("the layer that predicts further tokens (" + all + ") is left out: " +
                 (n == 0 ? "config.json says that there is none" : "the first one is missing"));
    d->ignore_tensors(all.c_str());
    return d->skip_layers(1);
  }
  for (int32_t l = 1; l < n; ++l) {
    const std::string layer = prefix + std::to_string(l) + ".";
    d->ignore_tensors((layer + "*").c_str());
    if (has_tensors(checkpoint, layer)) d->skip_layers(1);
  }
  d->add_prediction(
      d->layers()[d->layers().size() - 1],
      {.layer = "model.mtp_layers.0.", .names = kMimoPrediction, .tensors = {all}, .raw = true});
}

Imported import_mimo(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.names(qkv_bias_names());
  d.keys.require("attention_bias", true);  // of q, k and v, as in every Qwen2
  add_windows(&d);
  add_mimo_predictions(&d, checkpoint);
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
  add_qwen_experts(&d, false);
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
  add_qwen_experts(&d, false);
  d.window(used_window(&d));
  d.keys.ignore({"max_window_layers"});  // all layers have a window, or none
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"qwen2", import_qwen2},
                                       {"mimo", import_mimo},
                                       {"qwen3", import_qwen3},
                                       {"qwen2_moe", import_qwen2_moe},
                                       {"qwen3_moe", import_qwen3_moe}};
  return kRows;
}

}  // namespace moe::arch::qwen
