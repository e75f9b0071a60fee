// SPDX-License-Identifier: MIT
// Kimi Linear (Moonshot AI 2025): the delta rule with a decay for each key in most layers,
// DeepSeek-V3's latent attention without positions in the others, and its experts.

#include "formats/import/failure.h"
#include "kernels/mixers/kimi_delta.h"
#include "src/convert/arch/deepseek.h"
#include "src/convert/arch/mamba.h"
#include "src/convert/mixer.h"

namespace moe::arch::kimi_linear {
namespace {

using Mixer = KimiDeltaMixer;

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
void read_rule_object(const JsonNode& config, Json* c) {
  if (!config.has("linear_attn_config")) return;
  const JsonNode rule = config.at("linear_attn_config");
  rule.only({"full_attn_layers", "kda_layers", "head_dim", "num_heads", "short_conv_kernel_size"});
  const std::pair<const char*, const char*> sizes[] = {
      {"head_dim", "linear_head_dim"},
      {"num_heads", "linear_num_heads"},
      {"short_conv_kernel_size", "linear_conv_kernel_dim"}};
  for (const auto& [from, to] : sizes) {
    if (rule.has(from)) (*c)[to] = rule.at(from).value();
  }
  if (config.has("layer_types")) return;
  Json types = Json::array();
  const int64_t n_layers = config.at("num_hidden_layers").integer(1, kMaxLayers);
  for (int64_t l = 0; l < n_layers; ++l) types.push_back(nullptr);
  set_types(rule, "full_attn_layers", "full_attention", &types);
  set_types(rule, "kda_layers", "linear_attention", &types);
  for (size_t l = 0; l < types.size(); ++l) {
    if (!types[l].is_null()) continue;
    fail(MOE_ERR_SHAPE, "config.json: linear_attn_config: layer %zu is in neither list", l + 1);
  }
  (*c)["layer_types"] = types;
}

// config.json with DeepSeek-V3's keys, and what its readers take for granted.
Json as_deepseek(const JsonNode& config) {
  Json c = config.value();
  const auto rename = [&](const char* from, const char* to, const Json& fallback) {
    if (config.has(from)) c[to] = c[from];
    if (!c.contains(to) || c.at(to).is_null()) c[to] = fallback;
    c.erase(from);
  };
  rename("model_max_length", "max_position_embeddings", 1048576);
  rename("moe_renormalize", "norm_topk_prob", true);
  rename("num_expert_group", "n_group", 1);
  rename("num_experts", "n_routed_experts", 256);
  rename("num_experts_per_token", "num_experts_per_tok", 8);
  rename("num_shared_experts", "n_shared_experts", 1);
  rename("moe_router_activation_func", "scoring_func", "sigmoid");
  if (!config.has("topk_group")) c["topk_group"] = 1;
  if (!config.has("first_k_dense_replace")) c["first_k_dense_replace"] = 1;
  read_rule_object(config, &c);
  c.erase("linear_attn_config");
  c["head_dim"] = config.at("qk_rope_head_dim").value();
  c["num_key_value_heads"] = config.at("num_attention_heads").value();
  return c;
}

MixerConfig read_rule(ConfigKeys* keys, float eps) {
  MixerConfig rule = built_mixer("kimi_delta");
  const auto width =
      static_cast<float>(keys->integer("linear_head_dim", 128, 1, DeltaSizes::kMaxDim));
  rule.params[Mixer::kHeads] =
      static_cast<float>(keys->integer("linear_num_heads", 32, 1, DeltaSizes::kMaxHeads));
  rule.params[Mixer::kKeyDim] = rule.params[Mixer::kValueDim] = rule.params[Mixer::kRank] = width;
  rule.params[Mixer::kLength] =
      static_cast<float>(keys->integer("linear_conv_kernel_dim", 4, 1, Convolution::kMaxTaps));
  rule.params[Mixer::kEps] = eps;
  return rule;
}

void add_rule(Decoder* d) {
  d->names(kRule);
  d->names(kNetworks);
  d->names(sparse_moe_names());
  const MixerConfig rule = read_rule(&d->keys, d->config().norm_eps);
  d->keys.require("mla_use_nope", true);
  d->keys.require("use_grouped_topk", true);
  d->keys.require("num_nextn_predict_layers", 0);
  d->keys.ignore({"rope_theta", "pretraining_tp", "qk_head_dim"});
  const std::vector<JsonNode> types = d->keys.list("layer_types");
  if (!types.empty() && types.size() != d->layers().size()) {
    fail(MOE_ERR_SHAPE, "config.json: layer_types: expected %zu entries, found %zu",
         d->layers().size(), types.size());
  }
  for (size_t l = 0; l < d->layers().size(); ++l) {
    const bool attends = types.empty()
                             ? l > 0 && l % 4 == 0
                             : types[l].choice({"linear_attention", "full_attention"}) == 1;
    if (!attends) replace_attention(rule, &d->layer(l));
  }
}

// (channels, 1, taps) or (outputs, inputs) in a checkpoint, with channels or outputs last in a
// model.
void turn(int32_t n, std::vector<int64_t> shape, Source* source) {
  source->shape = std::move(shape);
  source->row_stride = source->shape.back();
  source->row_groups.pieces = {{n, 0}};
  source->row_groups.stride = 1;
}

void place(int weight, const MixerConfig& rule, const Slot& slot, const Checkpoint& checkpoint,
           Source* source) {
  const int32_t taps = rule.count(Mixer::kLength), rank = rule.count(Mixer::kRank);
  if (weight >= Mixer::kQConv && weight <= Mixer::kVConv) {
    turn(slot.rows / taps, {slot.rows / taps, 1, taps}, source);
  } else if (weight == Mixer::kZUp || weight == Mixer::kAUp) {
    turn(slot.rows / rank, {slot.rows / rank, rank}, source);
  } else if (weight == Mixer::kALog) {
    const SourceTensor* const tensor = checkpoint.find(source->tensor);
    if (tensor != nullptr && tensor->shape.size() == 4) source->shape = {1, 1, slot.rows, 1};
  }
}

Imported import_kimi_linear(const JsonNode& config, const Checkpoint& checkpoint) {
  const Json renamed = as_deepseek(config);
  Imported out = deepseek::import_v3_variant(JsonNode(renamed, "config.json"), checkpoint,
                                             {.rotates = false, .extend = add_rule});
  const auto first = static_cast<int>(mixer_role(built_mixer("kimi_delta").kind, 0));
  std::vector<MixerConfig> rules;
  for (const LayerConfig& layer : out.config.layers) rules.push_back(layer.mixer.mixer);
  out.locate = [locate = std::move(out.locate), rules = std::move(rules), first, &checkpoint](
                   const SlotGroup& group, const Slot& slot) {
    Source source = locate(group, slot);
    if (group.part == Part::kMixer && slot.role >= Role::kFirstMixer) {
      place(static_cast<int>(slot.role) - first, rules[static_cast<size_t>(group.layer)], slot,
            checkpoint, &source);
    }
    return source;
  };
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"kimi_linear", import_kimi_linear}};
  return kRows;
}

}  // namespace moe::arch::kimi_linear
