// SPDX-License-Identifier: MIT
// OLMoE (Muennighoff et al. 2024).

#include "src/convert/arch/decoder.h"

namespace moe::arch::olmoe {
namespace {

Imported import_olmoe(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.clip_qkv();
  d.attention_bias("attention_bias", false);
  d.qk_norm(QkNorm::kWhole);
  const bool renormalised = d.keys.boolean("norm_topk_prob", false);
  d.experts("num_experts", "num_local_experts", d.layer(0).ffn.d_ff,
            renormalised ? RouterWeights::kRenormalised : RouterWeights::kRaw);
  d.names(moe_names());
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"olmoe", import_olmoe}};
  return kRows;
}

}  // namespace moe::arch::olmoe
