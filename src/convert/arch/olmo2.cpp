// SPDX-License-Identifier: MIT
// OLMo 2 (OLMo team 2024): dense, with norms of each block's output instead of its input.

#include "src/convert/arch/decoder.h"

namespace moe::arch::olmo2 {
namespace {

Imported import_olmo2(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.names(mlp_names());
  d.attention_bias("attention_bias", false);
  d.qk_norm(QkNorm::kWhole);
  d.out_norms(false);
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"olmo2", import_olmo2}};
  return kRows;
}

}  // namespace moe::arch::olmo2
