// SPDX-License-Identifier: MIT
// MiniMax-M2 (MiniMax 2025): a sigmoid router with a bias, and partly rotated heads.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::minimax_m2 {
namespace {

constexpr TensorName kSelectionBias[] = {
    {"moe.router.selection_bias", "block_sparse_moe.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.gate.exp_probs_b.bias"}};  // GGUF's

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
  d.names(sparse_moe_names());
  d.names(kSelectionBias);
  d.keys.ignore({"router_jitter_noise", "shared_moe_mode"});  // training, and no shared expert
  d.keys.ignore({"use_mtp", "num_mtp_modules", "mtp_transformer_layers"});  // not in the files
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"minimax_m2", import_minimax_m2}};
  return kRows;
}

}  // namespace moe::arch::minimax_m2
