// SPDX-License-Identifier: MIT
// Mixtral (Jiang et al. 2024).

#include "src/convert/arch/decoder.h"

namespace moe::arch::mixtral {
namespace {

Imported import_mixtral(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint);
  d.window(d.sliding_window(0));
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRenormalised);
  d.names(sparse_moe_names());
  d.keys.ignore({"router_jitter_noise"});  // training only
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"mixtral", import_mixtral}};
  return kRows;
}

}  // namespace moe::arch::mixtral
