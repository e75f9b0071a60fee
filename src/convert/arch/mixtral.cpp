// Mixtral (Jiang et al. 2024) and PhiMoE, which shares its tensor names.

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

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"mixtral", import_mixtral}, {"phimoe", import_phimoe}};
  return kRows;
}

}  // namespace moe::arch::mixtral
