// SPDX-License-Identifier: MIT
// Phi-3.5-MoE (Abdin et al. 2024): SparseMixer's router, layer norms with biases.

#include "src/convert/arch/decoder.h"

namespace moe::arch::phimoe {
namespace {

constexpr TensorName kNormBias[] = {{"final_norm.bias", "model.norm.bias"},
                                    {"attention_norm.bias", "input_layernorm.bias"},
                                    {"ffn_norm.bias", "post_attention_layernorm.bias"}};
constexpr TensorName kHeadBias[] = {{"head.bias", "lm_head.bias"}};

Imported import_phimoe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.config().norm = NormKind::kLayer;
  d.names(kNormBias);
  d.attention_bias("attention_bias", false);
  if (d.keys.boolean("lm_head_bias", false)) d.names(kHeadBias);
  d.window(d.sliding_window(0));
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRaw);
  d.keys.require("num_experts_per_tok", 2);
  const float jitter = d.keys.number("router_jitter_noise", 0.01f, 0, 1e30f);
  for (LayerConfig& layer : d.layers()) {
    layer.ffn.moe.router.kind = RouterKind::kSparsemixer;
    layer.ffn.moe.router.jitter = jitter;
  }
  d.names(sparse_moe_names());
  d.keys.ignore({"input_jitter_noise"});      // training only
  d.ignore_tensors("rope_factors_*.weight");  // in GGUF files; already in the configuration
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"phimoe", import_phimoe}};
  return kRows;
}

}  // namespace moe::arch::phimoe
