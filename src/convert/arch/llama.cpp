// SPDX-License-Identifier: MIT
// Llama and Mistral: dense decoders. Also ternary checkpoints declared as Llama.

#include "src/convert/arch/decoder.h"

namespace moe::arch::llama {
namespace {

constexpr float kTheta = 10000;  // for files older than the key

// The second two are GGUF's, renamed.
constexpr TensorName kSubNorms[] = {{"attention.sub_norm.weight", "self_attn.inner_attn_ln.weight"},
                                    {"ffn.sub_norm.weight", "mlp.ffn_layernorm.weight"},
                                    {"attention.sub_norm.weight", "self_attn.attn_sub_norm.weight"},
                                    {"ffn.sub_norm.weight", "mlp.ffn_sub_norm.weight"}};

// 1bitLLM's BitNet b1.58 (Ma et al. 2024): unquantised weights that every forward pass rounds, and
// a norm before both output projections.
void add_one_bit(Decoder* d) {
  d->keys.require("weight_bits", 1);
  d->keys.require("input_bits", 8);
  d->names(kSubNorms);
  for (LayerConfig& layer : d->layers()) {
    layer.attention.sub_norm = true;
    layer.ffn.sub_norm = true;
  }
  d->precision(
      {.match = "layers.*", .weights = FormatId::kTernary2, .activations = ActPrecision::kA8});
}

Imported import_llama(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, kTheta);
  d.names(mlp_names());
  d.attention_bias("attention_bias", false);
  d.mlp_bias();
  if (d.keys.has("weight_bits")) add_one_bit(&d);
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_mistral(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, kTheta);
  d.names(mlp_names());
  d.window(d.sliding_window(4096));
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"llama", import_llama}, {"mistral", import_mistral}};
  return kRows;
}

}  // namespace moe::arch::llama
