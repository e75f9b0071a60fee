// SPDX-License-Identifier: MIT
// SmolLM3 (Hugging Face 2025): Llama without positions in every fourth layer.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::smollm3 {
namespace {

constexpr float kTheta = 2000000;

RenamedConfig with_defaults(const JsonNode& config) {
  RenamedConfig c(config);
  c.fallback("tie_word_embeddings", true);
  return c;
}

// Whether each layer rotates: the list, in which 1 says so, or all but every n-th.
std::vector<bool> read_rotates(Decoder* d) {
  const size_t n_layers = d->layers().size();
  const auto interval =
      static_cast<size_t>(d->keys.integer("no_rope_layer_interval", 4, 1, 1 << 16));
  std::vector<bool> rotates;
  for (size_t l = 0; l < n_layers; ++l) rotates.push_back((l + 1) % interval != 0);
  if (!d->keys.has("no_rope_layers")) return rotates;
  const std::vector<JsonNode> list = d->keys.list("no_rope_layers");
  if (list.size() < n_layers) {
    fail(MOE_ERR_SHAPE, "%s: expected %zu entries, found %zu",
         d->keys.place("no_rope_layers").c_str(), n_layers, list.size());
  }
  for (size_t l = 0; l < n_layers; ++l) rotates[l] = list[l].integer(0, 1) == 1;
  return rotates;
}

Imported import_smollm3(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig whole = with_defaults(config);
  const JsonNode node = whole.node();
  Decoder d(node, checkpoint, kTheta);
  d.names(mlp_names());
  d.attention_bias("attention_bias", false);
  d.mlp_bias();
  const std::vector<bool> rotates = read_rotates(&d);
  const int32_t said = d.sliding_window(0);
  const int32_t positions = d.keys.boolean("use_sliding_window", false) ? said : 0;
  const bool by_type = d.window_by_layer_type(positions);
  for (size_t l = 0; l < rotates.size(); ++l) {
    AttentionConfig& a = d.layer(l).attention;
    if (rotates[l]) continue;
    a.rope = {};
    if (!by_type) a.window = positions;
  }
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"smollm3", import_smollm3}};
  return kRows;
}

}  // namespace moe::arch::smollm3
