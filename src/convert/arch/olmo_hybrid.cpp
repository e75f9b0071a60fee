// SPDX-License-Identifier: MIT
// OLMo Hybrid (OLMo team 2026): gated delta rules with a norm before them in most layers, OLMo 2's
// attention, with norms after attention and network, in the others.

#include "src/convert/arch/gated_delta.h"

namespace moe::arch::olmo_hybrid {
namespace {

constexpr float kRuleEps = 1e-5f;  // of the rule's own norm, whatever the others have

constexpr TensorName kNames[] = {{"mixer_norm.weight", "input_layernorm.weight"},
                                 {"mixer_norm.weight", "attention_layer_norm.weight"},
                                 {"gated_delta.q.weight", "linear_attn.q_proj.weight"},
                                 {"gated_delta.k.weight", "linear_attn.k_proj.weight"},
                                 {"gated_delta.v.weight", "linear_attn.v_proj.weight"},
                                 {"gated_delta.z.weight", "linear_attn.g_proj.weight"},
                                 {"gated_delta.b.weight", "linear_attn.b_proj.weight"},
                                 {"gated_delta.a.weight", "linear_attn.a_proj.weight"},
                                 {"gated_delta.q_conv.weight", "linear_attn.q_conv1d.weight"},
                                 {"gated_delta.k_conv.weight", "linear_attn.k_conv1d.weight"},
                                 {"gated_delta.v_conv.weight", "linear_attn.v_conv1d.weight"},
                                 {"gated_delta.q_conv.weight", "linear_attn.conv1d.weight"},
                                 {"gated_delta.k_conv.weight", "linear_attn.conv1d.weight"},
                                 {"gated_delta.v_conv.weight", "linear_attn.conv1d.weight"},
                                 {"gated_delta.dt_bias", "linear_attn.dt_bias"},
                                 {"gated_delta.a_log", "linear_attn.A_log"},
                                 {"gated_delta.norm.weight", "linear_attn.o_norm.weight"},
                                 {"gated_delta.out.weight", "linear_attn.o_proj.weight"},
                                 // transformers 5 writes this for post_attention_layernorm.
                                 {"attention_out_norm.weight", "feedforward_layer_norm.weight"},
                                 {"ffn_norm.weight", "feedforward_layer_norm.weight"}};

Imported import_olmo_hybrid(const JsonNode& config, const Checkpoint& checkpoint) {
  RenamedConfig c(config);
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads"}) {
    if (!c.has(key)) c.copy("num_attention_heads", key);
  }
  c.fallback("linear_conv_kernel_dim", 4);
  const Json* const rope = config.value().find("rope_parameters");
  const bool rotates = rope != nullptr && rope->is_object() && rope->contains("rope_theta") &&
                       !rope->at("rope_theta").is_null();
  if (!rotates) c.erase("rope_parameters");
  const JsonNode node = c.node();
  Decoder d(node, checkpoint, 500000, 1e-6f);
  d.names(mlp_names());
  d.names(kNames);
  d.attention_bias("attention_bias", false);
  d.qk_norm(QkNorm::kWhole);
  d.out_norms(false);
  const float beta_scale = d.keys.boolean("linear_allow_neg_eigval", true) ? 2 : 1;
  d.keys.ignore({"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
                 "linear_dt_init_floor"});
  if (!rotates) {
    for (LayerConfig& layer : d.layers()) layer.attention.rope = {};
  }
  add_gated_delta(&d, "full_attention_interval", kRuleEps, beta_scale);
  for (LayerConfig& layer : d.layers()) {
    if (layer.has_mixer) layer.mixer.norms = layer.ffn.norms = {};
  }
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  arrange_gated_delta(&out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"olmo_hybrid", import_olmo_hybrid}};
  return kRows;
}

}  // namespace moe::arch::olmo_hybrid
