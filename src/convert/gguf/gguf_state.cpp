// SPDX-License-Identifier: MIT
// The keys of families with a state, and of Gemma 4, in GGUF files.
#include "src/convert/gguf/gguf_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxBlocks = 4096;

struct StateFamily {
  const char* arch;
  void (*read)(GgufKeys* keys, Json* config);
};

/// The sizes of a mixer, in the keys "ssm.".
struct StateSizes {
  int64_t taps = 0, state = 0, groups = 0, heads = 0, inner = 0;
};

StateSizes read_sizes(GgufKeys* keys) {
  StateSizes s;
  s.taps = keys->count("ssm.conv_kernel", 1, kMaxSize);
  s.state = keys->count("ssm.state_size", 1, kMaxSize);
  s.groups = keys->count("ssm.group_count", 1, kMaxSize);
  s.heads = keys->count("ssm.time_step_rank", 1, kMaxSize);
  s.inner = keys->count("ssm.inner_size", 1, kMaxSize);
  if (s.inner % s.heads != 0) {
    fail(MOE_ERR_SHAPE,
         "%s: key %s.ssm.inner_size is %lld, not a multiple of ssm.time_step_rank %lld",
         keys->checkpoint().path().c_str(), keys->architecture(), static_cast<long long>(s.inner),
         static_cast<long long>(s.heads));
  }
  return s;
}

// One number per layer, layers that predict further tokens included. A single number is that of
// all.
std::vector<int64_t> read_per_layer(GgufKeys* keys, const char* key) {
  const int64_t n_layers = keys->count("block_count", 1, kMaxBlocks);
  if (keys->take(key) == nullptr) keys->fail_missing(key);
  const JsonNode node = keys->node(key);
  if (!node.value().is_array()) {
    return std::vector<int64_t>(static_cast<size_t>(n_layers), node.integer(0, kMaxSize));
  }
  std::vector<int64_t> out;
  for (const JsonNode& item : node.elements()) out.push_back(item.integer(0, kMaxSize));
  if (static_cast<int64_t>(out.size()) != n_layers) {
    fail(MOE_ERR_SHAPE, "%s: key %s.%s has %zu entries, but block_count is %lld",
         keys->checkpoint().path().c_str(), keys->architecture(), key, out.size(),
         static_cast<long long>(n_layers));
  }
  return out;
}

// The only number above 0, or 0 if there is none.
int64_t one_of(GgufKeys* keys, const char* key, const std::vector<int64_t>& numbers) {
  int64_t found = 0;
  for (const int64_t n : numbers) {
    if (n != 0 && found != 0 && n != found) keys->fail_key(key);
    if (n != 0) found = n;
  }
  return found;
}

// Layers that predict further tokens are counted with the others, behind them.
int64_t read_prediction_layers(GgufKeys* keys, Json* config) {
  const int64_t n = keys->take("nextn_predict_layers") == nullptr
                        ? 0
                        : keys->node("nextn_predict_layers").integer(0, 64);
  const int64_t n_layers = keys->count("block_count", n + 1, kMaxBlocks) - n;
  (*config)["num_hidden_layers"] = n_layers;
  if (n > 0) (*config)["num_nextn_predict_layers"] = n;
  return n_layers;
}

// Layers without heads of keys have a state.
std::vector<int64_t> read_kv_heads(GgufKeys* keys, Json* config) {
  constexpr const char* kKey = "attention.head_count_kv";
  const std::vector<int64_t> heads = read_per_layer(keys, kKey);
  const int64_t n = one_of(keys, kKey, heads);
  (*config)["num_key_value_heads"] = n == 0 ? keys->count("attention.head_count", 1, kMaxSize) : n;
  return heads;
}

void move_key(Json* config, const char* from, const char* to) {
  if (!config->contains(from)) return;
  (*config)[to] = Json((*config)[from]);
  config->erase(from);
}

// Without a list the interval says which layers have a rule.
Json delta_layers(GgufKeys* keys, int64_t n_layers, int64_t fallback) {
  const Json* const listed = keys->take("attention.recurrent_layers");
  const int64_t interval = keys->take("full_attention_interval") == nullptr
                               ? fallback
                               : keys->node("full_attention_interval").integer(1, kMaxBlocks);
  std::vector<bool> rules;
  if (listed != nullptr) {
    for (const JsonNode& rule : keys->node("attention.recurrent_layers").elements()) {
      rules.push_back(rule.boolean());
    }
    const auto n_all = static_cast<size_t>(keys->count("block_count", 1, kMaxBlocks));
    if (rules.size() != n_all) {
      fail(MOE_ERR_SHAPE,
           "%s: key %s.attention.recurrent_layers has %zu entries, but block_count is %zu",
           keys->checkpoint().path().c_str(), keys->architecture(), rules.size(), n_all);
    }
  }
  Json types = Json::array();
  for (int64_t l = 0; l < n_layers; ++l) {
    const bool rule = listed != nullptr ? rules[static_cast<size_t>(l)] : (l + 1) % interval != 0;
    types.push_back(rule ? "linear_attention" : "full_attention");
  }
  return types;
}

// llama.cpp's default, which is not that of the checkpoints.
void set_head_dim(GgufKeys* keys, Json* config) {
  if (config->contains("head_dim")) return;
  const int64_t heads = keys->count("attention.head_count", 1, kMaxSize);
  (*config)["head_dim"] = keys->count("embedding_length", 1, kMaxSize) / heads;
}

// All norms hold the 1 that the checkpoint adds. Qwen3.5's value heads stand so that those of one
// key head are as many apart as there are key heads.
void read_delta(GgufKeys* keys, Json* config) {
  Json& c = *config;
  const StateSizes s = read_sizes(keys);
  c["linear_conv_kernel_dim"] = s.taps;
  c["linear_key_head_dim"] = s.state;
  c["linear_num_key_heads"] = s.groups;
  c["linear_num_value_heads"] = s.heads;
  c["linear_value_head_dim"] = s.inner / s.heads;
  c["layer_types"] = delta_layers(keys, read_prediction_layers(keys, config), 4);
  c["norms_hold_one"] = true;
  c["value_heads_alternate"] = !keys->is("qwen3next");
  (void)keys->take("rope.dimension_sections");  // a text has the same position on all axes
  set_head_dim(keys, config);
}

void read_mamba_sizes(GgufKeys* keys, const StateSizes& s, Json* config) {
  Json& c = *config;
  c["mamba_d_conv"] = s.taps;
  c["mamba_d_state"] = s.state;
  c["mamba_n_groups"] = s.groups;
  c["mamba_n_heads"] = s.heads;
  c["mamba_d_head"] = s.inner / s.heads;
  c["mamba_conv_bias"] = keys->any_layer_has("ssm_conv1d.bias");
}

// The width of a dense network is that of its matrix; the key has the experts'.
void read_granite(GgufKeys* keys, Json* config) {
  Json& c = *config;
  const StateSizes s = read_sizes(keys);
  read_mamba_sizes(keys, s, config);
  const int64_t width = keys->count("embedding_length", 1, kMaxSize);
  if (s.inner % width != 0) keys->fail_key("ssm.inner_size");
  c["mamba_expand"] = s.inner / width;
  Json types = Json::array();
  for (const int64_t heads : read_kv_heads(keys, config)) {
    types.push_back(heads == 0 ? "mamba" : "attention");
  }
  c["layer_types"] = std::move(types);
  const bool moe = c.contains("num_experts");
  c["num_local_experts"] = moe ? Json(c["num_experts"]) : Json(0);
  c.erase("num_experts");
  c.erase("moe_intermediate_size");
  const SourceTensor* const gate = keys->find("blk.0.ffn_gate.weight");
  const Json shared = c.contains("shared_expert_intermediate_size")
                          ? Json(c["shared_expert_intermediate_size"])
                          : Json(0);
  c.erase("shared_expert_intermediate_size");
  const bool dense = !moe && gate != nullptr && !gate->shape.empty();
  c["shared_intermediate_size"] = dense ? Json(gate->shape[0]) : shared;
  const Json* const rotates = keys->take("rope.scaling.finetuned");
  c["position_embedding_type"] = rotates == nullptr || *rotates == true ? "rope" : "nope";
  if (keys->any_layer_has("attn_q.bias")) c["attention_bias"] = true;
}

// The experts of all layers have one width; a key for each layer would be those of a pruned model.
void read_nemotron_experts(GgufKeys* keys, Json* config) {
  Json& c = *config;
  move_key(config, "num_experts", "n_routed_experts");
  for (const char* key : {"expert_feed_forward_length", "expert_used_count"}) {
    if (const Json* value = keys->take(key); value != nullptr && value->is_array()) {
      keys->fail_key(key);
    }
  }
  move_key(config, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size");
  c["routed_scaling_factor"] = keys->expert_weights_scale();
  for (const auto& [gguf, key] : {std::pair{"expert_group_count", "n_group"},
                                  {"expert_group_used_count", "topk_group"},
                                  {"expert_shared_count", "n_shared_experts"}}) {
    if (const Json* value = keys->take(gguf)) c[key] = *value;
  }
}

void read_nemotron(GgufKeys* keys, Json* config) {
  Json& c = *config;
  if (keys->take("moe_latent_size") != nullptr) keys->fail_key("moe_latent_size");
  const StateSizes s = read_sizes(keys);
  read_mamba_sizes(keys, s, config);
  move_key(config, "mamba_conv_bias", "use_conv_bias");
  set_head_dim(keys, config);
  const std::vector<int64_t> heads = read_kv_heads(keys, config);
  const std::vector<int64_t> widths = read_per_layer(keys, "feed_forward_length");
  const int64_t width = one_of(keys, "feed_forward_length", widths);
  const bool moe = c.contains("num_experts");
  c.erase("intermediate_size");
  if (width > 0 && !moe) c["intermediate_size"] = width;
  if (moe) {
    if (!c.contains("moe_intermediate_size")) c["moe_intermediate_size"] = width;
    read_nemotron_experts(keys, config);
  } else {
    for (const char* key : {"expert_group_count", "expert_group_used_count"}) (void)keys->take(key);
  }
  const auto n_layers = static_cast<size_t>(read_prediction_layers(keys, config));
  Json types = Json::array();
  for (size_t l = 0; l < n_layers; ++l) {
    const char* const network = moe ? "moe" : "mlp";
    types.push_back(widths[l] > 0 ? network : heads[l] > 0 ? "attention" : "mamba");
  }
  c["layers_block_type"] = std::move(types);
  const Json* const eps = keys->take("attention.layer_norm_epsilon");
  if (eps != nullptr && !c.contains("rms_norm_eps")) c["rms_norm_eps"] = *eps;
  c["hidden_act"] = "relu2";
  c["mlp_bias"] = keys->any_layer_has("ffn_up.bias");
  (void)keys->take("rope.scaling.finetuned");  // attention has no positions
}

// All multipliers are part of the weights.
void read_falcon(GgufKeys* keys, Json* config) {
  Json& c = *config;
  const StateSizes s = read_sizes(keys);
  read_mamba_sizes(keys, s, config);
  c["mamba_d_ssm"] = s.inner;
  c["mamba_proj_bias"] = keys->any_layer_has("ssm_in.bias");
  c["projectors_bias"] = keys->any_layer_has("ssm_out.bias");
  c["mamba_rms_norm"] = keys->any_layer_has("ssm_norm.weight");
  c["mamba_norm_before_gate"] = false;
}

// Latent attention as one head on the latent. attention.value_length has no meaning: it is a width
// that the checkpoint does not use.
void read_kimi_latent(GgufKeys* keys, Json* config) {
  Json& c = *config;
  const int64_t rotated = keys->count("rope.dimension_count", 1, kMaxSize);
  const int64_t latent = keys->count("attention.kv_lora_rank", 1, kMaxSize);
  const int64_t key_width = keys->count("attention.key_length_mla", 1, kMaxSize);
  if (key_width <= rotated) keys->fail_key("attention.key_length_mla");
  if (keys->count("attention.key_length", 1, kMaxSize) != latent + rotated) {
    keys->fail_key("attention.key_length");
  }
  (void)keys->take("attention.value_length");
  c.erase("head_dim");
  c["qk_rope_head_dim"] = rotated;
  c["qk_nope_head_dim"] = key_width - rotated;
  c["v_head_dim"] = keys->count("attention.value_length_mla", 1, kMaxSize);
  c["kv_lora_rank"] = latent;
  if (const Json* rank = keys->take("attention.q_lora_rank")) c["q_lora_rank"] = *rank;
}

void read_kimi_rule(GgufKeys* keys, int64_t n_layers, Json* config) {
  Json& c = *config;
  c["linear_head_dim"] = keys->count("kda.head_dim", 1, kMaxSize);
  c["linear_conv_kernel_dim"] = keys->count("ssm.conv_kernel", 1, kMaxSize);
  c["linear_num_heads"] = keys->count("attention.head_count", 1, kMaxSize);
  const std::vector<int64_t> kv_heads = read_kv_heads(keys, config);
  Json types = Json::array();
  for (size_t l = 0; l < static_cast<size_t>(n_layers); ++l) {
    types.push_back(kv_heads[l] == 0 ? "linear_attention" : "full_attention");
  }
  c["layer_types"] = std::move(types);
  c["num_key_value_heads"] = c.at("linear_num_heads").get<int64_t>();
}

void read_kimi_experts(GgufKeys* keys, Json* config) {
  Json& c = *config;
  c["num_experts"] = keys->count("expert_count", 1, kMaxSize);
  c["num_experts_per_token"] = keys->count("expert_used_count", 1, kMaxSize);
  c.erase("num_experts_per_tok");
  c["routed_scaling_factor"] = keys->expert_weights_scale();
  for (const auto& [gguf, key] : {std::pair{"expert_shared_count", "num_shared_experts"},
                                  {"leading_dense_block_count", "first_k_dense_replace"},
                                  {"expert_group_count", "num_expert_group"},
                                  {"expert_group_used_count", "topk_group"}}) {
    if (const Json* value = keys->take(gguf)) c[key] = *value;
  }
}

void read_kimi(GgufKeys* keys, Json* config) {
  read_kimi_latent(keys, config);
  read_kimi_rule(keys, keys->count("block_count", 1, kMaxBlocks), config);
  read_kimi_experts(keys, config);
  config->erase("shared_expert_intermediate_size");
}

// Ling 3. Limits are numbers per layer, 0 for none, layers that predict further tokens included.
void read_ling_3(GgufKeys* keys, Json* config) {
  Json& c = *config;
  read_kimi_latent(keys, config);
  read_kimi_rule(keys, read_prediction_layers(keys, config), config);
  read_kimi_experts(keys, config);
  // One group of all experts, where files say nothing.
  if (!c.contains("num_expert_group")) c["num_expert_group"] = c["topk_group"] = 1;
  move_key(config, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size");
  for (const auto& [gguf, key] : {std::pair{"kda.safe_gate", "kda_safe_gate"},
                                  {"kda.gate_lower_bound", "kda_lower_bound"},
                                  {"swiglu_clamp_exp", "expert_swiglu_limit_list"},
                                  {"swiglu_clamp_shexp", "share_expert_swiglu_limit_list"}}) {
    if (const Json* value = keys->take(gguf)) c[key] = *value;
  }
}

// MiniMax-Text-01 and M1: one factor of what all blocks read; that of what they give is 1.
void read_minimax_01(GgufKeys* keys, Json* config) {
  Json& c = *config;
  c["layer_types"] = delta_layers(keys, keys->count("block_count", 1, kMaxBlocks), 8);
  if (!c.contains("residual_multiplier")) keys->fail_missing("residual_scale");
  for (const char* key : {"full_attn_alpha_factor", "linear_attn_alpha_factor"}) {
    c[key] = Json(c["residual_multiplier"]);
  }
  move_key(config, "residual_multiplier", "mlp_alpha_factor");
}

// Layers without a window turn the first dimensions of a head only: the others have a factor that
// stops them.
Json read_whole_rope(GgufKeys* keys, int64_t head_dim) {
  constexpr const char* kFactors = "rope_freqs.weight";
  const SourceTensor* const tensor = keys->find(kFactors);
  Json rope = {{"rope_type", "proportional"}, {"partial_rotary_factor", 1.0}};
  if (keys->take("rope.freq_base") == nullptr) keys->fail_missing("rope.freq_base");
  rope["rope_theta"] = keys->at("rope.freq_base");
  if (tensor == nullptr) return rope;
  if (static_cast<int64_t>(tensor->n_elements) != head_dim / 2) {
    fail(MOE_ERR_SHAPE, "tensor %s: expected (%lld), found %s", kFactors,
         static_cast<long long>(head_dim / 2), shape_text(tensor->shape).c_str());
  }
  std::vector<float> factors(static_cast<size_t>(head_dim / 2));
  keys->checkpoint().read(*tensor, 0, factors.size(), factors.data());
  constexpr float kStops = 1e30f;
  const auto end = std::find(factors.begin(), factors.end(), kStops);
  if (!std::all_of(factors.begin(), end, [](float f) { return f == 1; }) ||
      !std::all_of(end, factors.end(), [](float f) { return f == kStops; })) {
    fail(MOE_ERR_UNSUPPORTED, "tensor %s: expected factors of 1, then of 1e30", kFactors);
  }
  const auto n = static_cast<double>(end - factors.begin());
  const auto width = static_cast<double>(head_dim);
  double share = 2 * n / width;
  // The product is truncated, and may be rounded to less than the number that it stands for.
  if (std::trunc(width * share / 2) < n) share = std::nextafter(share, 1.0);
  rope["partial_rotary_factor"] = share;
  return rope;
}

int64_t read_head_dim(GgufKeys* keys, const std::string& suffix) {
  const int64_t width = keys->count("attention.key_length" + suffix, 1, kMaxSize);
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    if (keys->count(key + suffix, 1, kMaxSize) != width) keys->fail_key(key + suffix);
  }
  return width;
}

// Networks of layers that see the keys of others may be twice as wide.
void read_gemma4_widths(GgufKeys* keys, int64_t n_shared, Json* config) {
  constexpr const char* kKey = "feed_forward_length";
  const std::vector<int64_t> widths = read_per_layer(keys, kKey);
  const auto n_own = static_cast<std::ptrdiff_t>(widths.size()) - n_shared;
  const bool wide = n_shared > 0 && widths.back() == 2 * widths.front();
  for (std::ptrdiff_t l = 0; l < static_cast<std::ptrdiff_t>(widths.size()); ++l) {
    const int64_t width = wide && l >= n_own ? widths.back() : widths.front();
    if (widths[static_cast<size_t>(l)] != width) keys->fail_key(kKey);
  }
  (*config)["intermediate_size"] = widths.front();
  (*config)["use_double_wide_mlp"] = wide;
}

void read_gemma4(GgufKeys* keys, Json* config) {
  Json& c = *config;
  constexpr const char* kHeads = "attention.head_count_kv";
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const int64_t n_layers = keys->count("block_count", 1, kMaxBlocks);
  const int64_t n_shared = keys->take("attention.shared_kv_layers") == nullptr
                               ? 0
                               : keys->count("attention.shared_kv_layers", 0, n_layers - 1);
  const int64_t whole = read_head_dim(keys, ""), local = read_head_dim(keys, "_swa");
  const std::vector<int64_t> heads = read_per_layer(keys, kHeads);
  if (keys->take(kPattern) == nullptr) keys->fail_missing(kPattern);
  const std::vector<JsonNode> pattern = keys->node(kPattern).elements();
  if (pattern.size() != heads.size()) keys->fail_key(kPattern);
  const int64_t n_heads = keys->count("attention.head_count", 1, kMaxSize);
  Json layers = Json::object();
  bool k_eq_v = false;
  for (size_t l = 0; l < heads.size(); ++l) {
    if (heads[l] < 1 || heads[l] > n_heads) keys->fail_key(kHeads);
    const bool slides = pattern[l].boolean();
    layers[std::to_string(l)] = {{"head_dim", slides ? local : whole},
                                 {"num_key_value_heads", heads[l]}};
    const std::string values = "blk." + std::to_string(l) + ".attn_v.weight";
    const bool own = static_cast<int64_t>(l) < n_layers - n_shared;
    k_eq_v = k_eq_v || (own && !slides && keys->find(values.c_str()) == nullptr);
  }
  c["per_layer_config"] = std::move(layers);
  c["head_dim"] = local;
  c["num_key_value_heads"] = heads.front();
  c["attention_k_eq_v"] = k_eq_v;
  c["num_kv_shared_layers"] = n_shared;
  read_gemma4_widths(keys, n_shared, config);
  const int64_t inputs = keys->count("embedding_length_per_layer_input", 0, kMaxSize);
  c["hidden_size_per_layer_input"] = inputs;
  if (inputs > 0 && c.contains("vocab_size")) {
    c["vocab_size_per_layer_input"] = c.at("vocab_size");
  }
  if (const Json* cap = keys->take("final_logit_softcapping")) c["final_logit_softcapping"] = *cap;
  c["enable_moe_block"] = keys->any_layer_has("ffn_gate_inp.weight");
  move_key(config, "num_experts_per_tok", "top_k_experts");
  const Json* const base = keys->take("rope.freq_base_swa");
  c["rope_parameters"] = {
      {"full_attention", read_whole_rope(keys, whole)},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", base == nullptr ? Json(1e4) : *base}}}};
  c.erase("rope_theta");
  c["hidden_activation"] = "gelu_pytorch_tanh";
  c.erase("hidden_act");
}

constexpr StateFamily kStateFamilies[] = {
    {"qwen3next", read_delta},     {"qwen35", read_delta},
    {"qwen35moe", read_delta},     {"granitehybrid", read_granite},
    {"nemotron_h", read_nemotron}, {"nemotron_h_moe", read_nemotron},
    {"falcon-h1", read_falcon},    {"kimi-linear", read_kimi},
    {"bailingmoe3", read_ling_3},  {"minimax-01", read_minimax_01},
    {"gemma4", read_gemma4}};

}  // namespace

bool is_gguf_state(std::string_view architecture) {
  return std::any_of(std::begin(kStateFamilies), std::end(kStateFamilies),
                     [&](const StateFamily& family) { return architecture == family.arch; });
}

void read_gguf_state(GgufKeys* keys, Json* config) {
  for (const StateFamily& family : kStateFamilies) {
    if (keys->is(family.arch)) family.read(keys, config);
  }
}

}  // namespace moe
