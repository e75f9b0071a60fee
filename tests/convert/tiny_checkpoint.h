// SPDX-License-Identifier: MIT
#pragma once
// A complete small checkpoint in the research layout, made from its configuration.

#include <functional>
#include <random>

#include "src/convert/importer.h"
#include "tests/convert/checkpoint_builder.h"

namespace moe::test {

/// Two layers, the second with 4 experts; each test patches the keys that it tests.
inline const char* const kTinyConfig = R"({
  "model_type": "moe_research", "layout_version": 1, "name": "tiny", "vocab_size": 40, "d_model": 24,
  "n_layers": 2, "context_length": 32, "norm": {"kind": "rms", "eps": 1e-5}, "positions": "rope",
  "tie_embeddings": false, "bos_token_id": 0, "eos_token_ids": [1], "add_bos": true,
  "layer_defaults": {
    "attention": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 12},
    "ffn": {"kind": "dense", "d_ff": 20, "gated": true, "act": "silu"}},
  "layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
              "router": {"kind": "softmax", "k": 2}}}}]
})";

/// The tensors that `config` needs, with normally distributed values; optional ones if
/// `optional_too`.
inline RawTensors random_tensors(const std::string& config, bool optional_too = false) {
  TempFolder folder;
  folder.write("config.json", config);
  folder.write("model.safetensors", safetensors_text(RawTensors{}));
  const Imported imported = import_checkpoint(Checkpoint(folder.path()));
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.1f);
  RawTensors out;
  for (const SlotGroup& group : list_slots(imported.config, imported.cosine_widths)) {
    for (const Slot& slot : group.slots) {
      if (slot.optional && !optional_too) continue;
      const auto n = static_cast<size_t>(slot.rows) * static_cast<size_t>(slot.cols);
      std::vector<int64_t> shape = {slot.rows};
      if (slot.kind == SlotKind::kTable) {
        out[slot.name] = {"I32", shape, as_bytes(std::vector<int32_t>(n))};
        continue;
      }
      if (slot.kind != SlotKind::kVector) shape.push_back(slot.cols);
      std::vector<float> values(n);
      for (float& v : values) v = normal(random) + (slot.kind == SlotKind::kVector ? 1.0f : 0.0f);
      out[slot.name] = f32_tensor(shape, values);
    }
  }
  return out;
}

inline void write_checkpoint(const TempFolder& folder, const std::string& config,
                             const RawTensors& tensors) {
  folder.write("config.json", config);
  folder.write("model.safetensors", safetensors_text(tensors));
}

/// kTinyConfig after a merge patch (RFC 7396).
inline std::string patched(const char* patch, const char* base = kTinyConfig) {
  Json config = parse_json(base, "test");
  config.merge_patch(parse_json(patch, "test"));
  return config.dump();
}

}  // namespace moe::test
