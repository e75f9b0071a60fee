// SPDX-License-Identifier: MIT
// Phi-3 and Phi-4 (Abdin et al. 2024): Llama with q, k and v in one tensor, and gate and up in one.

#include "src/convert/arch/decoder.h"

namespace moe::arch::phi3 {
namespace {

constexpr Place kGateHalf = {.parts = 2, .part = 0};
constexpr Place kUpHalf = {.parts = 2, .part = 1};

constexpr TensorName kMlp[] = {{"ffn.gate.weight", "mlp.gate_up_proj.weight", kGateHalf},
                               {"ffn.up.weight", "mlp.gate_up_proj.weight", kUpHalf},
                               {"ffn.gate.weight", "mlp.up_proj.weight", kGateHalf},  // GGUF's
                               {"ffn.up.weight", "mlp.up_proj.weight", kUpHalf},
                               {"ffn.down.weight", "mlp.down_proj.weight"}};

// LongRoPE's original length: the model's own key, or 4096. It takes precedence over rope's.
RenamedConfig with_original_length(const JsonNode& config) {
  const char* const key = "original_max_position_embeddings";
  RenamedConfig c(config);
  for (const char* rope : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(rope) || !config.at(rope).has(key)) continue;
    if (config.has(key)) check_same(config.at(key), config.at(rope).at(key));
    c.json()[rope].erase(key);
  }
  c.fallback(key, 4096);
  return c;
}

Imported import_phi3(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig with_length = with_original_length(config);
  const JsonNode node = with_length.node();
  Decoder d(node, checkpoint, 10000);
  d.names(kMlp);
  d.qkv_in_one({"self_attn.qkv_proj.weight"});
  d.window(d.sliding_window(0));
  d.keys.require("full_attn_mod", 1);
  d.keys.require("interpolate_factor", 1);
  d.ignore_tensors("rope_factors_*.weight");  // in GGUF files; already in the configuration
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"phi3", import_phi3}};
  return kRows;
}

}  // namespace moe::arch::phi3
