// SPDX-License-Identifier: MIT
// Qwen2, Qwen3 and their mixtures of experts.

#include "formats/import/failure.h"
#include "src/convert/arch/qwen_experts.h"

namespace moe::arch::qwen {
namespace {

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
                                       {"qwen3", import_qwen3},
                                       {"qwen2_moe", import_qwen2_moe},
                                       {"qwen3_moe", import_qwen3_moe}};
  return kRows;
}

}  // namespace moe::arch::qwen
