// SPDX-License-Identifier: MIT
// IBM Granite: dense and mixture-of-experts models (with a shared expert in granitemoeshared), and
// Granite 4 H, with Mamba2 in most layers.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/mamba.h"

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
  d->config().logit_multiplier = 1 / d->keys.positive("logits_scaling", 1);
  const float attention = d->keys.positive("attention_multiplier", 1);
  for (LayerConfig& layer : d->layers()) layer.attention.multiplier = attention;
  d->attention_bias("attention_bias", false);
}

// A GGUF file's names come first there, so that errors have them.
void add_experts(Decoder* d, const Checkpoint& checkpoint) {
  d->experts("num_local_experts", "num_experts", d->layer(0).ffn.d_ff, RouterWeights::kChosen);
  if (!checkpoint.metadata().is_null()) d->names(stacked_moe_names());
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
  add_experts(&d, checkpoint);
  add_multipliers(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_granitemoeshared(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  add_experts(&d, checkpoint);
  add_multipliers(&d);
  const int32_t shared = d.keys.integer("shared_intermediate_size", 0, 0, 1 << 20);
  if (shared > 0) d.names(kShared);
  for (LayerConfig& layer : d.layers()) layer.ffn.moe.shared.d_ff = shared;
  d.quantization(Quantization::kNone);
  return d.finish();
}

constexpr TensorName kMamba[] = {{"mixer_norm.weight", "input_layernorm.weight"},
                                 {"mamba2.in.weight", "mamba.in_proj.weight"},
                                 {"mamba2.conv.weight", "mamba.conv1d.weight"},
                                 {"mamba2.dt_bias", "mamba.dt_bias"},
                                 {"mamba2.a_log", "mamba.A_log"},
                                 {"mamba2.d", "mamba.D"},
                                 {"mamba2.norm.weight", "mamba.norm.weight"},
                                 {"mamba2.out.weight", "mamba.out_proj.weight"}};
constexpr TensorName kConvBias[] = {{"mamba2.conv.bias", "mamba.conv1d.bias"}};
constexpr TensorName kProjBias[] = {{"mamba2.in.bias", "mamba.in_proj.bias"},
                                    {"mamba2.out.bias", "mamba.out_proj.bias"}};
constexpr TensorName kSharedAlone[] = {
    {"ffn.gate.weight", "shared_mlp.input_linear.weight", {.parts = 2, .part = 0}},
    {"ffn.up.weight", "shared_mlp.input_linear.weight", {.parts = 2, .part = 1}},
    {"ffn.down.weight", "shared_mlp.output_linear.weight"}};

// As the tensors of a GGUF file are called.
constexpr TensorName kSharedOfGguf[] = {
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight"}};

// "layer_types" or "layers_block_type": "mamba", later "linear_attention"; "attention", later
// "full_attention".
void add_mamba(Decoder* d) {
  const int64_t inner = int64_t{d->keys.integer("mamba_expand", 2, 1, 64)} * d->config().d_model;
  const MixerConfig mamba = read_mamba(d, inner);
  d->names(kMamba);
  if (d->keys.boolean("mamba_conv_bias", true)) d->names(kConvBias);
  if (d->keys.boolean("mamba_proj_bias", false)) d->names(kProjBias);
  const size_t n_layers = d->layers().size();
  const std::vector<JsonNode> types = d->keys.list("layer_types", n_layers),
                              older = d->keys.list("layers_block_type", n_layers);
  const auto attends = [](const JsonNode& type) {
    return type.choice({"mamba", "linear_attention", "attention", "full_attention"}) >= 2;
  };
  for (size_t l = 0; l < n_layers; ++l) {
    const bool both = !types.empty() && !older.empty();
    if (both && attends(types[l]) != attends(older[l])) fail_different(types[l], older[l]);
    const std::vector<JsonNode>& said = types.empty() ? older : types;
    if (said.empty() || !attends(said[l])) replace_attention(mamba, &d->layer(l));
  }
}

// Granite 4 H: Mamba2 in most layers, experts or a dense network behind each.
Imported import_granitemoehybrid(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 10000, 1e-6f);
  const bool gguf = !checkpoint.metadata().is_null();
  const int32_t shared = d.keys.integer("shared_intermediate_size", 1024, 0, 1 << 20);
  if (d.keys.integer("num_local_experts", 8, 0, 1 << 16) > 0) {
    add_experts(&d, checkpoint);
    if (shared > 0) d.names(gguf ? std::span<const TensorName>(kSharedOfGguf) : kShared);
    for (LayerConfig& layer : d.layers()) layer.ffn.moe.shared.d_ff = shared;
  } else {
    d.keys.ignore({"num_experts_per_tok"});
    d.names(gguf ? mlp_names() : kSharedAlone);
    for (LayerConfig& layer : d.layers()) layer.ffn.d_ff = shared;
  }
  add_multipliers(&d);
  const bool rotates = d.keys.has("position_embedding_type") &&
                       d.keys.node("position_embedding_type").choice({"rope", "nope"}) == 0;
  for (LayerConfig& layer : d.layers()) {
    if (!rotates) layer.attention.rope = {};
  }
  add_mamba(&d);
  d.keys.ignore({"normalization_function", "init_method"});
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  turn_mamba_convolutions(checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"granite", import_granite},
                                       {"granitemoe", import_granitemoe},
                                       {"granitemoeshared", import_granitemoeshared},
                                       {"granitemoehybrid", import_granitemoehybrid}};
  return kRows;
}

}  // namespace moe::arch::granite
