// SPDX-License-Identifier: MIT
// Mixtral (Jiang et al. 2024), and PhiMoE and MiniMax-M2, which share its tensor names.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::mixtral {
namespace {

constexpr Place kGateHalf = {.stacked = true, .parts = 2, .part = 0};
constexpr Place kUpHalf = {.stacked = true, .parts = 2, .part = 1};

constexpr TensorName kExperts[] = {
    {"moe.router.weight", "block_sparse_moe.gate.weight"},
    {"moe.router.weight", "mlp.gate.weight"},
    {"moe.experts.gate.weight", "block_sparse_moe.experts.{e}.w1.weight"},
    {"moe.experts.up.weight", "block_sparse_moe.experts.{e}.w3.weight"},
    {"moe.experts.down.weight", "block_sparse_moe.experts.{e}.w2.weight"},
    {"moe.experts.gate.weight", "mlp.experts.gate_up_proj", kGateHalf},
    {"moe.experts.up.weight", "mlp.experts.gate_up_proj", kUpHalf},
    {"moe.experts.down.weight", "mlp.experts.down_proj", {.stacked = true}}};

constexpr TensorName kNormBias[] = {{"final_norm.bias", "model.norm.bias"},
                                    {"attention_norm.bias", "input_layernorm.bias"},
                                    {"ffn_norm.bias", "post_attention_layernorm.bias"}};
constexpr TensorName kSelectionBias[] = {
    {"moe.router.selection_bias", "block_sparse_moe.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.e_score_correction_bias"}};
constexpr TensorName kHeadBias[] = {{"head.bias", "lm_head.bias"}};

Imported import_mixtral(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.window(d.sliding_window(0));
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRenormalised);
  d.names(kExperts);
  d.keys.ignore({"router_jitter_noise"});  // training only
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_phimoe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.config().norm = NormKind::kLayer;
  d.names(kNormBias);
  d.attention_bias("attention_bias", false);
  if (d.keys.boolean("lm_head_bias", false)) d.names(kHeadBias);
  d.window(d.sliding_window(0));
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRaw);
  d.keys.require("num_experts_per_tok", 2);
  const float jitter = d.keys.number("router_jitter_noise", 0.01f);
  for (LayerConfig& layer : d.layers()) {
    layer.ffn.moe.router.kind = RouterKind::kSparsemixer;
    layer.ffn.moe.router.jitter = jitter;
  }
  d.names(kExperts);
  d.keys.ignore({"input_jitter_noise"});      // training only
  d.ignore_tensors("rope_factors_*.weight");  // in GGUF files; already in the configuration
  d.quantization(Quantization::kNone);
  return d.finish();
}

// The rotated part of each head: its width, which may also be given as a fraction.
void read_rotated_part(Decoder* d) {
  const int32_t head_dim = d->layer(0).attention.head_dim;
  const int32_t by_factor = d->layer(0).attention.rope.dims;
  const int32_t dims = d->keys.integer("rotary_dim", by_factor, 2, head_dim);
  if (by_factor != head_dim && by_factor != dims) {
    fail_value(d->keys.node("rotary_dim"),
               "partial_rotary_factor rotates " + std::to_string(by_factor));
  }
  for (LayerConfig& layer : d->layers()) layer.attention.rope.dims = dims;
}

Imported import_minimax_m2(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 5000000);
  (void)d.keys.node("head_dim");  // not hidden_size / num_attention_heads if it is missing
  d.qk_norm(QkNorm::kWhole);
  d.keys.require("use_qk_norm", true);
  d.keys.require("qk_norm_type", "per_layer");
  read_rotated_part(&d);
  for (const JsonNode& type : d.keys.list("attn_type_list")) {
    if (type.value() != 1) fail_value(type, "only 1, full attention, is");
  }
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRenormalised);
  d.keys.require("scoring_func", "sigmoid");
  d.keys.require("use_routing_bias", true);
  d.keys.require("shared_intermediate_size", 0);
  for (LayerConfig& layer : d.layers()) layer.ffn.moe.router.kind = RouterKind::kSigmoid;
  d.names(kExperts);
  d.names(kSelectionBias);
  d.keys.ignore({"router_jitter_noise", "shared_moe_mode"});  // training, and no shared expert
  d.keys.ignore({"use_mtp", "num_mtp_modules", "mtp_transformer_layers"});  // not in the files
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {
      {"mixtral", import_mixtral}, {"phimoe", import_phimoe}, {"minimax_m2", import_minimax_m2}};
  return kRows;
}

}  // namespace moe::arch::mixtral
