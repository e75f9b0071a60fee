// SPDX-License-Identifier: MIT
// Maple: a mixture of experts whose linear weights are ternary with one scale per row, published as
// BF16. Sliding-window layers rotate half of each head; the others have no positions.

#include "src/convert/arch/decoder.h"

namespace moe::arch::maple {
namespace {

constexpr const char* kEmbedding = "model.word_embeddings.weight";
constexpr TensorName kNames[] = {{"attention.q_norm.weight", "self_attn.query_layernorm.weight"},
                                 {"attention.k_norm.weight", "self_attn.key_layernorm.weight"}};

Imported import_maple(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 10000);
  const bool gguf = !checkpoint.metadata().is_null();
  if (!gguf) d.replace_name({"embedding.weight", kEmbedding});
  d.name({"embedding.weight", gguf ? kEmbedding : "model.embed_tokens.weight"});
  d.names(kNames);
  d.names(moe_names());
  d.keys.ignore({"intermediate_size"});  // there is no dense layer
  d.keys.require("use_qk_norm", true);
  d.keys.require("use_bias", false);
  d.keys.require("nope_on_global_attention", true);
  d.keys.require("norm_topk_prob", true);
  d.keys.require("num_shared_experts", 0);
  d.keys.require("first_k_dense_replace", 0);
  d.keys.require("moe_router_enable_expert_bias", false);
  d.keys.require("router_dtype", "fp32");
  d.keys.ignore({"quantize", "preaffine"});  // for training; the weights define the values
  d.qk_norm(QkNorm::kHead);
  d.experts("num_experts", "num_local_experts", d.keys.integer("moe_intermediate_size", 1, 1 << 20),
            RouterWeights::kRenormalised);
  // Maple's window excludes the query's own position; ours includes it.
  const int32_t positions = d.sliding_window(512) + 1;
  if (!d.window_by_layer_type(positions)) {
    for (size_t l = 0; l < d.layers().size(); ++l) {
      d.layer(l).attention.window = l % 4 == 3 ? 0 : positions;
    }
  }
  const bool says_dims = d.keys.has("partial_rotary_factor") || d.keys.has("rope_parameters");
  for (LayerConfig& layer : d.layers()) {
    if (!says_dims) layer.attention.rope.dims = layer.attention.head_dim / 2;
    if (layer.attention.window == 0) layer.attention.rope = {};
    layer.ffn.act.limit = d.keys.number("swiglu_limit", 7, 0, 1e30f);
  }
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"maple", import_maple, "MapleForCausalLM"}};
  return kRows;
}

}  // namespace moe::arch::maple
