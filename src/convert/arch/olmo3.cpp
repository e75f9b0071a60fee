// SPDX-License-Identifier: MIT
// OLMo 3 (OLMo team 2025): OLMo 2 with a window in three of four layers, whose rotary positions are
// not scaled. FlexOlmo (Shi et al. 2025): OLMo 2 with experts.

#include "src/convert/arch/decoder.h"

namespace moe::arch::olmo3 {
namespace {

constexpr double kTheta = 500000;

// OLMo 2's attention.
void set_attention(Decoder* d) {
  d->out_norms(false);
  d->attention_bias("attention_bias", false);
  d->qk_norm(QkNorm::kWhole);
}

Imported import_olmo3(const JsonNode& config, const Checkpoint& checkpoint) {
  RenamedConfig split(config);
  const bool given = config.has("rope_theta");
  split_rope("rope_theta", given ? config.at("rope_theta").value() : Json(kTheta), &split);
  const JsonNode node = split.node();
  Decoder d(node, checkpoint, kTheta);
  d.names(mlp_names());
  set_attention(&d);
  d.window_except_every(4);
  d.local_rope("rope_theta");
  d.quantization(Quantization::kNone);
  return d.finish();
}

Imported import_flex_olmo(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, kTheta);
  d.names(moe_names());
  set_attention(&d);
  const bool renormalised = d.keys.boolean("norm_topk_prob", false);
  d.experts("num_experts", "num_local_experts", d.layer(0).ffn.d_ff,
            renormalised ? RouterWeights::kRenormalised : RouterWeights::kRaw);
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"olmo3", import_olmo3}, {"flex_olmo", import_flex_olmo}};
  return kRows;
}

}  // namespace moe::arch::olmo3
