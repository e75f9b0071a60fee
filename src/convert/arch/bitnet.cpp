// SPDX-License-Identifier: MIT
// BitNet b1.58 2B-4T (Ma et al. 2025): dense, ternary, with a norm before both output projections.
// Packed, or as weights that every forward pass rounds.

#include "src/convert/arch/decoder.h"

namespace moe::arch::bitnet {
namespace {

constexpr TensorName kSubNorms[] = {{"attention.sub_norm.weight", "self_attn.attn_sub_norm.weight"},
                                    {"ffn.sub_norm.weight", "mlp.ffn_sub_norm.weight"}};

Imported import_bitnet(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.names(kSubNorms);
  d.attention_bias("attention_bias", false);
  for (LayerConfig& layer : d.layers()) {
    layer.attention.sub_norm = true;
    layer.ffn.sub_norm = true;
  }
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"bitnet", import_bitnet}};
  return kRows;
}

}  // namespace moe::arch::bitnet
