// SPDX-License-Identifier: MIT
// Ling 3 (inclusionAI 2026): Kimi's delta rule with bounded decays in most layers, in the others
// DeepSeek-V3's latent attention with an output gate per head, and DeepSeek-V3's experts.

#include <algorithm>
#include <optional>

#include "formats/import/failure.h"
#include "kernels/mixers/kimi_delta.h"
#include "src/convert/arch/deepseek.h"
#include "src/convert/arch/kimi_delta.h"

namespace moe::arch::bailing_hybrid {
namespace {

// Names that DeepSeek's tensors have here.
constexpr TensorName kRenamed[] = {
    {"embedding.weight", "model.word_embeddings.weight"},
    {"attention.o.weight", "attention.dense.weight"},
    {"attention.q_latent.weight", "attention.q_a_proj.weight"},
    {"attention.q_latent_norm.weight", "attention.q_a_layernorm.weight"},
    {"attention.latent.weight", "attention.kv_a_proj_with_mqa.weight"},
    {"attention.latent_norm.weight", "attention.kv_a_layernorm.weight"},
    {"moe.router.selection_bias", "mlp.gate.expert_bias"}};

// GGUF files have DeepSeek's two tensors instead of the one.
constexpr TensorName kKeysAndValues[] = {{"attention.k.weight", "attention.kv_b_proj.weight"},
                                         {"attention.v.weight", "attention.kv_b_proj.weight"}};

constexpr TensorName kNames[] = {
    {"attention.output_gate.weight", "attention.g_proj.weight"},
    {"mixer_norm.weight", "input_layernorm.weight"},
    {"kimi_delta.q.weight", "attention.q_proj.weight"},
    {"kimi_delta.k.weight", "attention.k_proj.weight"},
    {"kimi_delta.v.weight", "attention.v_proj.weight"},
    {"kimi_delta.z.weight", "attention.g_proj.weight"},
    {"kimi_delta.b.weight", "attention.b_proj.weight"},
    {"kimi_delta.a.weight", "attention.f_proj.weight"},
    {"kimi_delta.q_conv.weight", "attention.q_conv1d.weight"},
    {"kimi_delta.k_conv.weight", "attention.k_conv1d.weight"},
    {"kimi_delta.v_conv.weight", "attention.v_conv1d.weight"},
    {"kimi_delta.dt_bias", "attention.dt_bias"},
    {"kimi_delta.a_log", "attention.A_log"},
    {"kimi_delta.norm.weight", "attention.o_norm.weight"},
    {"kimi_delta.out.weight", "attention.o_proj.weight"},
    {"kimi_delta.out.weight", "attention.dense.weight"},
    {"prediction.norm.weight", "model.layers.{l}.final_layernorm.weight"}};

// Ling 2.5 and 2.6 have the same model_type, and lightning attention with rotary positions.
void refuse_earlier(const JsonNode& config) {
  if (!config.has("architectures")) return;
  for (const JsonNode& name : config.at("architectures").elements()) {
    if (name.string().find("V2_5") == std::string::npos) continue;
    fail_value(name, "Ling 3's BailingMoeV3ForCausalLM and BailingHybridForCausalLM are");
  }
}

// The published factor of what is rotated is one of head_dim, and says qk_rope_head_dim once more.
void drop_rotary_factor(const JsonNode& config, Json* object) {
  const Json* const factor = object->find("partial_rotary_factor");
  if (factor == nullptr || !factor->is_number() || !config.has("head_dim")) return;
  const double dims = factor->get<double>() * config.at("head_dim").number();
  if (dims == config.at("qk_rope_head_dim").number()) object->erase("partial_rotary_factor");
}

// `transformers` writes its defaults of these beside the keys that it reads.
void drop_saved_defaults(RenamedConfig* c) {
  const auto drop = [c](const char* key, int64_t saved) {
    if (c->has(key) && c->node().at(key).value() == saved) c->erase(key);
  };
  if (c->has("rope_parameters") && c->node().at("rope_parameters").has("rope_theta")) {
    drop("rope_theta", 6000000);
  }
  if (c->has("linear_conv_kernel_dim")) drop("short_conv_kernel_size", 4);
}

// config.json with DeepSeek-V3's keys.
RenamedConfig as_deepseek(const JsonNode& config) {
  RenamedConfig c(config);
  if (!c.has("linear_head_dim")) c.copy("head_dim", "linear_head_dim");
  drop_saved_defaults(&c);
  c.rename("short_conv_kernel_size", "linear_conv_kernel_dim");
  if (!c.has("rope_parameters")) c.fallback("rope_theta", 6000000);
  add_deepseek_keys(
      {.context = 262144, .n_experts = 512, .n_groups = 8, .top_groups = 4, .n_dense = 2}, &c);
  drop_rotary_factor(config, &c.json());
  if (c.has("rope_parameters") && c.json()["rope_parameters"].is_object()) {
    drop_rotary_factor(config, &c.json()["rope_parameters"]);
  }
  return c;
}

// The code of `transformers` has no limits, and other code clamps silu(gate) and not the gate.
void check_limits(ConfigKeys* keys) {
  std::optional<JsonNode> first;
  std::string lists;
  for (const char* key : {"expert_swiglu_limit_list", "share_expert_swiglu_limit_list"}) {
    const std::vector<JsonNode> limits = keys->list(key);
    const auto found = std::find_if(limits.begin(), limits.end(),
                                    [](const JsonNode& limit) { return limit.number() != 0; });
    if (found == limits.end()) continue;
    lists += (lists.empty() ? "" : ",") + std::string(key);
    if (!first) first = *found;
  }
  if (!first) return;
  fail_value(*first, "only 0 is; --ignore-key " + lists +
                         " converts the model without the limits, as transformers runs it");
}

// Published files say in many keys what their code takes for granted.
void check_keys(ConfigKeys* keys) {
  for (const char* yes :
       {"no_kda_lora", "linear_silu", "use_qk_norm", "moe_router_enable_expert_bias"}) {
    keys->require(yes, true);
  }
  for (const char* no : {"use_kda_lora", "use_mla_nope", "use_nGPT", "up_proj_norm", "value_norm",
                         "scale_router_input", "use_bias", "use_qkv_bias"}) {
    keys->require(no, false);
  }
  keys->require("gated_attention_proj_granularity_type", "head_wise");
  keys->require("linear_attention", "kda");
  keys->require("score_function", "sigmoid");
  keys->require("group_norm_size", 1);
  keys->require("num_kv_heads_for_linear_attn", 0);
  keys->require("rotary_dim", keys->node("qk_rope_head_dim").value());
  keys->require("moe_shared_expert_intermediate_size", keys->node("moe_intermediate_size").value());
  keys->ignore({"rope_theta", "router_dtype", "pretraining_tp", "embedding_dropout",
                "output_dropout", "mtp_loss_scaling_factor", "mtp_use_kda", "max_window_layers"});
  check_limits(keys);
}

// The last layer of each group attends.
std::vector<bool> attention_layers(Decoder* d) {
  const auto n_layers = static_cast<int32_t>(d->layers().size());
  const int32_t n = d->keys.integer("layer_group_size", 6, 1, kMaxLayers);
  if (!d->keys.has("layer_types")) {
    d->keys.check_divides("layer_group_size", n, "num_hidden_layers", n_layers,
                          ", and layer_types, which says what the layers after the last group are, "
                          "is missing");
  }
  std::vector<bool> attends;
  for (int32_t l = 0; l < n_layers; ++l) attends.push_back((l + 1) % n == 0);
  return attends;
}

MixerConfig read_rule(Decoder* d) {
  const int32_t heads = d->layer(0).attention.n_heads;
  MixerConfig rule = read_kimi_delta(&d->keys, heads, d->config().norm_eps);
  rule.params[KimiDeltaMixer::kRank] = 0;
  const float bound = d->keys.number("kda_lower_bound", -5);
  if (!d->keys.boolean("kda_safe_gate", true)) return rule;
  const float least = mixer_info(rule).params[KimiDeltaMixer::kDecayBound].low;
  if (!(bound < 0 && bound >= least)) {
    fail_value(d->keys.node("kda_lower_bound"), "a number from -1000000 on and below 0 is");
  }
  rule.params[KimiDeltaMixer::kDecayBound] = bound;
  return rule;
}

void add_rule(Decoder* d) {
  for (const TensorName& row : kRenamed) d->replace_name(row);
  const bool latent = d->layer(0).attention.q_latent > 0;
  d->replace_name(
      {"attention.q.weight", latent ? "attention.q_b_proj.weight" : "attention.q_proj.weight"});
  d->names(kNames);
  check_keys(&d->keys);
  for (LayerConfig& layer : d->layers()) {
    layer.attention.output_gate = layer.attention.gate_by_head = true;
  }
  set_kimi_delta(d, read_rule(d), attention_layers(d));
}

void add_published_rule(Decoder* d) {
  add_rule(d);
  for (const TensorName& row : kKeysAndValues) d->replace_name(row);
}

// The gates of a rule and of attention have different names.
void add_gguf_rule(Decoder* d) {
  add_rule(d);
  d->replace_name({"kimi_delta.z.weight", "attention.g_a_proj.weight"});
}

Imported import_bailing_hybrid(const JsonNode& config, const Checkpoint& checkpoint) {
  refuse_earlier(config);
  const RenamedConfig renamed = as_deepseek(config);
  const bool gguf = !checkpoint.metadata().is_null();
  Imported out = deepseek::import_v3_variant(renamed.node(), checkpoint,
                                             {.extend = gguf ? add_gguf_rule : add_published_rule});
  arrange_kimi_delta(checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"bailing_hybrid", import_bailing_hybrid}};
  return kRows;
}

}  // namespace moe::arch::bailing_hybrid
