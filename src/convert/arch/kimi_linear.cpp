// SPDX-License-Identifier: MIT
// Kimi Linear (Moonshot AI 2025): the delta rule with a decay for each key in most layers,
// DeepSeek-V3's latent attention without positions in the others, and its experts.

#include "formats/import/failure.h"
#include "src/convert/arch/deepseek.h"
#include "src/convert/arch/kimi_delta.h"

namespace moe::arch::kimi_linear {
namespace {

constexpr TensorName kRule[] = {{"mixer_norm.weight", "input_layernorm.weight"},
                                {"kimi_delta.q.weight", "self_attn.q_proj.weight"},
                                {"kimi_delta.k.weight", "self_attn.k_proj.weight"},
                                {"kimi_delta.v.weight", "self_attn.v_proj.weight"},
                                {"kimi_delta.z.weight", "self_attn.g_a_proj.weight"},
                                {"kimi_delta.b.weight", "self_attn.b_proj.weight"},
                                {"kimi_delta.a.weight", "self_attn.f_a_proj.weight"},
                                {"kimi_delta.q_conv.weight", "self_attn.q_conv1d.weight"},
                                {"kimi_delta.k_conv.weight", "self_attn.k_conv1d.weight"},
                                {"kimi_delta.v_conv.weight", "self_attn.v_conv1d.weight"},
                                {"kimi_delta.z_up.weight", "self_attn.g_b_proj.weight"},
                                {"kimi_delta.a_up.weight", "self_attn.f_b_proj.weight"},
                                {"kimi_delta.dt_bias", "self_attn.dt_bias"},
                                {"kimi_delta.a_log", "self_attn.A_log"},
                                {"kimi_delta.norm.weight", "self_attn.o_norm.weight"},
                                {"kimi_delta.out.weight", "self_attn.o_proj.weight"}};

// transformers 5 calls dense networks, too, as published files call experts.
constexpr TensorName kNetworks[] = {
    {"ffn.gate.weight", "block_sparse_moe.gate_proj.weight"},
    {"ffn.up.weight", "block_sparse_moe.up_proj.weight"},
    {"ffn.down.weight", "block_sparse_moe.down_proj.weight"},
    {"moe.router.selection_bias", "block_sparse_moe.gate.e_score_correction_bias"},
    {"moe.shared.gate.weight", "block_sparse_moe.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "block_sparse_moe.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "block_sparse_moe.shared_experts.down_proj.weight"}};

// A list of layers, counted from 1: each becomes `type` in `types`.
void set_types(const JsonNode& rule, const char* key, const char* type, Json* types) {
  const auto most = static_cast<int64_t>(types->size());
  for (const JsonNode& node : rule.at(key).elements()) {
    (*types)[static_cast<size_t>(node.integer(1, most) - 1)] = type;
  }
}

// The types of layers and the sizes of published files, which give them in an object.
void read_rule_object(const JsonNode& config, RenamedConfig* c) {
  if (!config.has("linear_attn_config")) return;
  const JsonNode rule = config.at("linear_attn_config");
  rule.only({"full_attn_layers", "kda_layers", "head_dim", "num_heads", "short_conv_kernel_size"});
  const std::pair<const char*, const char*> sizes[] = {
      {"head_dim", "linear_head_dim"},
      {"num_heads", "linear_num_heads"},
      {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
  for (const auto& [from, to] : sizes) {
    if (rule.has(from)) c->take(rule.at(from), to);
  }
  c->erase("linear_attn_config");
  const bool listed = rule.has("full_attn_layers") || rule.has("kda_layers");
  if (config.has("layer_types") && !listed) return;
  Json types = Json::array();
  const int64_t n_layers = config.at("num_hidden_layers").integer(1, kMaxLayers);
  for (int64_t l = 0; l < n_layers; ++l) types.push_back(nullptr);
  set_types(rule, "full_attn_layers", "full_attention", &types);
  set_types(rule, "kda_layers", "linear_attention", &types);
  for (size_t l = 0; l < types.size(); ++l) {
    if (!types[l].is_null()) continue;
    fail(MOE_ERR_SHAPE, "%s: layer %zu is in neither list", rule.path().c_str(), l + 1);
  }
  c->take(JsonNode(types, rule.path()), "layer_types");
}

// config.json with DeepSeek-V3's keys.
RenamedConfig as_deepseek(const JsonNode& config) {
  RenamedConfig c(config);
  add_deepseek_keys({.context = 1048576, .n_experts = 256}, &c);
  c.rename("moe_router_activation_func", "scoring_func");
  read_rule_object(config, &c);
  return c;
}

void add_rule(Decoder* d) {
  d->names(kRule);
  d->names(kNetworks);
  d->names(sparse_moe_names());
  d->keys.require("mla_use_nope", true);
  d->keys.require("use_grouped_topk", true);
  d->keys.require("num_nextn_predict_layers", 0);
  d->keys.ignore({"rope_theta", "pretraining_tp", "qk_head_dim"});
  std::vector<bool> attends;
  for (size_t l = 0; l < d->layers().size(); ++l) attends.push_back(l > 0 && l % 4 == 0);
  set_kimi_delta(d, read_kimi_delta(&d->keys, 32, d->config().norm_eps), attends);
}

Imported import_kimi_linear(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig renamed = as_deepseek(config);
  Imported out = deepseek::import_v3_variant(renamed.node(), checkpoint,
                                             {.rotates = false, .extend = add_rule});
  arrange_kimi_delta(checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"kimi_linear", import_kimi_linear}};
  return kRows;
}

}  // namespace moe::arch::kimi_linear
