// SPDX-License-Identifier: MIT
// IBM Granite: dense and mixture-of-experts models (with a shared expert in granitemoeshared).

#include "src/convert/arch/decoder.h"

namespace moe::arch::granite {
namespace {

constexpr TensorName kMoe[] = {
    {"moe.router.weight", "block_sparse_moe.router.layer.weight"},
    {"moe.experts.gate.weight",
     "block_sparse_moe.input_linear.weight",
     {.stacked = true, .parts = 2, .part = 0}},
    {"moe.experts.up.weight",
     "block_sparse_moe.input_linear.weight",
     {.stacked = true, .parts = 2, .part = 1}},
    {"moe.experts.down.weight", "block_sparse_moe.output_linear.weight", {.stacked = true}}};

constexpr TensorName kShared[] = {
    {"moe.shared.gate.weight", "shared_mlp.input_linear.weight", {.parts = 2, .part = 0}},
    {"moe.shared.up.weight", "shared_mlp.input_linear.weight", {.parts = 2, .part = 1}},
    {"moe.shared.down.weight", "shared_mlp.output_linear.weight"}};

void add_multipliers(Decoder* d) {
  d->config().embedding_multiplier = d->keys.number("embedding_multiplier", 1);
  d->config().residual_multiplier = d->keys.number("residual_multiplier", 1);
  d->config().logit_multiplier = 1 / d->keys.number("logits_scaling", 1);
  const float attention = d->keys.number("attention_multiplier", 1);
  for (LayerConfig& layer : d->layers()) layer.attention.multiplier = attention;
  d->attention_bias("attention_bias", false);
}

void add_experts(Decoder* d) {
  d->experts("num_local_experts", "num_experts", d->layer(0).ffn.d_ff, RouterWeights::kChosen);
  d->names(kMoe);
}

Imported import_granite(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.mlp_bias();
  add_multipliers(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_granitemoe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  add_experts(&d);
  add_multipliers(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_granitemoeshared(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  add_experts(&d);
  add_multipliers(&d);
  const int32_t shared = d.keys.integer("shared_intermediate_size", 0, 0, 1 << 20);
  if (shared > 0) d.names(kShared);
  for (LayerConfig& layer : d.layers()) layer.ffn.moe.shared.d_ff = shared;
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"granite", import_granite},
                                       {"granitemoe", import_granitemoe},
                                       {"granitemoeshared", import_granitemoeshared}};
  return kRows;
}

}  // namespace moe::arch::granite
