// SPDX-License-Identifier: MIT
// gpt-oss: all experts in one tensor per layer, as BF16 or MXFP4; sinks; windows in every other
// layer.

#include "src/convert/arch/decoder.h"

namespace moe::arch::gpt_oss {
namespace {

// Gate and up alternate: columns of the BF16 tensors, rows of the packed ones and of the biases.
constexpr Place pair(int32_t part, Place place) {
  place.stacked = true;
  place.parts = 2;
  place.part = part;
  place.interleaved = true;
  return place;
}

constexpr TensorName kNames[] = {
    {"attention.sinks", "self_attn.sinks"},
    {"moe.router.weight", "mlp.router.weight"},
    {"moe.router.bias", "mlp.router.bias"},
    {"moe.experts.gate.weight", "mlp.experts.gate_up_proj", pair(0, {.transposed = true})},
    {"moe.experts.up.weight", "mlp.experts.gate_up_proj", pair(1, {.transposed = true})},
    {"moe.experts.down.weight", "mlp.experts.down_proj", {.stacked = true, .transposed = true}},
    {"moe.experts.gate.weight", "mlp.experts.gate_up_proj_blocks",
     pair(0, {.packing = Packing::kMxfp4})},
    {"moe.experts.up.weight", "mlp.experts.gate_up_proj_blocks",
     pair(1, {.packing = Packing::kMxfp4})},
    {"moe.experts.down.weight",
     "mlp.experts.down_proj_blocks",
     {.stacked = true, .packing = Packing::kMxfp4}},
    {"moe.experts.gate.bias", "mlp.experts.gate_up_proj_bias", pair(0, {})},
    {"moe.experts.up.bias", "mlp.experts.gate_up_proj_bias", pair(1, {})},
    {"moe.experts.down.bias", "mlp.experts.down_proj_bias", {.stacked = true}},
    // GGUF's, renamed
    {"attention.sinks", "self_attn.sinks.weight"},
    {"moe.router.weight", "mlp.gate.weight"},
    {"moe.router.bias", "mlp.gate.bias"},
    {"moe.experts.gate.bias", "mlp.experts.gate_exps.bias", {.stacked = true}},
    {"moe.experts.up.bias", "mlp.experts.up_exps.bias", {.stacked = true}},
    {"moe.experts.down.bias", "mlp.experts.down_exps.bias", {.stacked = true}}};

Imported import_gpt_oss(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(kNames);
  d.attention_bias("attention_bias", true);
  const char* const k_key = d.keys.either("num_experts_per_tok", "experts_per_token");
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kChosen, k_key);
  const int32_t positions = d.sliding_window(128);
  if (!d.window_by_layer_type(positions)) {
    for (size_t l = 0; l < d.layers().size(); l += 2) d.layer(l).attention.window = positions;
  }
  for (LayerConfig& layer : d.layers()) {
    layer.attention.sinks = true;
    layer.ffn.act.alpha = d.keys.number("swiglu_alpha", 1.702f);
    layer.ffn.act.limit = d.keys.number("swiglu_limit", 7, 0, 1e30f);
    layer.ffn.act.up_offset = 1;
  }
  d.keys.ignore({"initial_context_length"});  // a duplicate of rope_scaling's original length
  d.quantization(Quantization::kMxfp4);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"gpt_oss", import_gpt_oss}};
  return kRows;
}

}  // namespace moe::arch::gpt_oss
