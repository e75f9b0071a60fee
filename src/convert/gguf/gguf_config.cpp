// SPDX-License-Identifier: MIT
// Converts the key-value pairs of a GGUF file to the model's config.json.

#include <algorithm>
#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_encoder.h"
#include "src/convert/gguf/gguf_keys.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/gguf/gguf_state.h"
#include "src/convert/importer.h"

namespace moe {
namespace {

struct Arch {
  const char* name;           // general.architecture
  const char* model_type;     // of transformers
  const char* moe_type = "";  // if there are experts; "": the same
  bool interleaved = false;   // q and k were permuted for rotation of neighbouring pairs
  int renormalised = -1;      // norm_topk_prob, which has no key; -1: not a key of the model
};

constexpr Arch kArchs[] = {
    {.name = "llama", .model_type = "llama", .moe_type = "mixtral", .interleaved = true},
    {.name = "qwen2", .model_type = "qwen2"},
    {.name = "qwen3", .model_type = "qwen3"},
    {.name = "qwen2moe", .model_type = "qwen2_moe", .renormalised = 0},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .renormalised = 1},
    {.name = "olmoe", .model_type = "olmoe", .renormalised = 0},
    {.name = "granite", .model_type = "granite", .interleaved = true},
    {.name = "granitemoe", .model_type = "granitemoe", .interleaved = true},
    {.name = "maple", .model_type = "maple", .renormalised = 1},
    {.name = "gpt-oss", .model_type = "gpt_oss"},
    {.name = "bitnet", .model_type = "llama"},
    {.name = "bitnet-b1.58", .model_type = "bitnet"},
    {.name = "bitnet-25", .model_type = "bitnet"},
    {.name = "phimoe", .model_type = "phimoe"},
    {.name = "deepseek2", .model_type = "deepseek_v2"},
    {.name = "olmo2", .model_type = "olmo2"},
    {.name = "lfm2", .model_type = "lfm2"},
    {.name = "lfm2moe", .model_type = "lfm2_moe", .renormalised = 1},
    {.name = "phi3", .model_type = "phi3"},
    {.name = "gemma", .model_type = "gemma"},
    {.name = "gemma2", .model_type = "gemma2"},
    {.name = "gemma3", .model_type = "gemma3_text"},
    {.name = "gemma4", .model_type = "gemma4_text"},
    {.name = "glm4moe", .model_type = "glm4_moe"},
    {.name = "bailingmoe", .model_type = "bailing_moe", .interleaved = true},
    {.name = "bailingmoe2", .model_type = "bailing_moe_v2"},
    {.name = "smollm3", .model_type = "smollm3", .interleaved = true},
    {.name = "minimax-m2", .model_type = "minimax_m2"},
    {.name = "qwen3next", .model_type = "qwen3_next", .renormalised = 1},
    {.name = "qwen35", .model_type = "qwen3_5_text"},
    {.name = "qwen35moe", .model_type = "qwen3_5_moe_text", .renormalised = 1},
    {.name = "granitehybrid", .model_type = "granitemoehybrid", .interleaved = true},
    {.name = "nemotron_h", .model_type = "nemotron_h"},
    {.name = "nemotron_h_moe", .model_type = "nemotron_h", .renormalised = 1},
    {.name = "falcon-h1", .model_type = "falcon_h1"},
    {.name = "kimi-linear", .model_type = "kimi_linear", .renormalised = 1},
    {.name = "bailingmoe3", .model_type = "bailing_hybrid"},
    {.name = "minimax-01", .model_type = "minimax"},
};

// Keys after "ARCH." with one meaning in all architectures.
struct Key {
  const char* gguf;
  const char* transformers;
};
constexpr Key kKeys[] = {{"context_length", "max_position_embeddings"},
                         {"embedding_length", "hidden_size"},
                         {"block_count", "num_hidden_layers"},
                         {"feed_forward_length", "intermediate_size"},
                         {"attention.head_count", "num_attention_heads"},
                         {"attention.head_count_kv", "num_key_value_heads"},
                         {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                         {"attention.key_length", "head_dim"},
                         {"attention.sliding_window", "sliding_window"},
                         {"attention.scale", "attention_multiplier"},
                         {"shortconv.l_cache", "conv_L_cache"},
                         {"rope.freq_base", "rope_theta"},
                         {"expert_used_count", "num_experts_per_tok"},
                         {"expert_feed_forward_length", "moe_intermediate_size"},
                         {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                         {"embedding_scale", "embedding_multiplier"},
                         {"residual_scale", "residual_multiplier"},
                         {"logit_scale", "logits_scaling"}};

class ConfigBuilder {
 public:
  explicit ConfigBuilder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), keys_(checkpoint), all_(keys_.all()), arch_(find_arch()) {
    keys_.set_architecture(arch_.name);
  }

  Json build() {
    Json& c = config_;
    const bool moe = take("expert_count") != nullptr && node("expert_count").number() > 0;
    if (moe) c["num_experts"] = at("expert_count");
    c["model_type"] = moe && arch_.moe_type[0] != '\0' ? arch_.moe_type : arch_.model_type;
    c["hidden_act"] = "silu";
    c["tie_word_embeddings"] = !has_any("output.weight", "output.bias");
    if (arch_.interleaved) c["rope_interleaved"] = true;
    if (arch_.renormalised >= 0) c["norm_topk_prob"] = arch_.renormalised == 1;
    for (const Key& key : kKeys) {
      if (const Json* value = take(key.gguf)) c[key.transformers] = *value;
    }
    if (!moe) c.erase("num_experts_per_tok");
    if (is("olmo2") && c.contains("sliding_window")) read_olmo3();
    read_shapes();
    if (is_state()) read_gguf_state(&keys_, &c);
    if (is("deepseek2")) read_deepseek();
    if (!is("gemma4")) read_rope();
    if (is("gpt-oss")) read_gpt_oss();
    if (is("gemma") || is("gemma2") || is("gemma3")) read_gemma();
    if (is("glm4moe")) read_glm4();
    if (is_bailing()) read_bailing();
    if (is_lfm2()) read_lfm2();
    if (std::string_view(arch_.name).starts_with("bitnet")) read_bitnet();
    read_windows();
    read_tokens();
    check_constants();
    keys_.check_all_taken();
    return std::move(config_);
  }

 private:
  const Arch& find_arch() {
    const std::string kind = all_.string("general.type", "model");
    if (kind == "adapter" || kind == "mmproj") {
      fail(MOE_ERR_UNSUPPORTED, "%s: general.type is \"%s\": a part for another file, not a model",
           checkpoint_.path().c_str(), kind.c_str());
    }
    const std::string name = all_.at("general.architecture").string();
    std::string known;
    for (const Arch& arch : kArchs) {
      if (name == arch.name) return arch;
      known += (known.empty() ? "" : ", ") + std::string(arch.name);
    }
    if (const char* const reason = beyond_layers(name)) {
      fail(MOE_ERR_UNSUPPORTED,
           "%.100s: general.architecture \"%.60s\" is not supported: no layer here computes %s",
           checkpoint_.path().c_str(), name.c_str(), reason);
    }
    known += ", " + gguf_encoder_names();
    fail(MOE_ERR_UNSUPPORTED,
         "%.100s: general.architecture: unknown architecture \"%.60s\"; known: %s",
         checkpoint_.path().c_str(), name.c_str(), known.c_str());
  }

  const SourceTensor* find(const char* tensor) const { return checkpoint_.find(tensor); }
  // Asked of two that belong together, so that an error names the one that is missing.
  bool has_any(const char* one, const char* other) const {
    return find(one) != nullptr || find(other) != nullptr;
  }

  // The value of ARCH.key, which then counts as understood; null if missing.
  const Json* take(const std::string& key) { return keys_.take(key); }
  const Json& at(const std::string& key) const { return keys_.at(key); }
  JsonNode node(const std::string& key) const { return keys_.node(key); }

  bool is(const char* arch) const { return std::string_view(arch_.name) == arch; }
  bool is_bailing() const { return is("bailingmoe") || is("bailingmoe2"); }

  bool is_lfm2() const { return is("lfm2") || is("lfm2moe"); }
  bool is_state() const { return is_gguf_state(arch_.name); }
  bool has_kimi_rule() const { return is("kimi-linear") || is("bailingmoe3"); }
  bool is_qwen_rule() const { return is("qwen3next") || is("qwen35") || is("qwen35moe"); }

  // A layer without KV heads is a convolution. Widths are as the model uses them.
  void read_lfm2() {
    Json& c = config_;
    if (!c.contains("conv_L_cache")) keys_.fail_missing("shortconv.l_cache");
    c["conv_bias"] = false;
    Json types = Json::array();
    c["num_key_value_heads"] = c["num_attention_heads"];  // unless a layer has some
    for (const JsonNode& heads : node("attention.head_count_kv").elements()) {
      const int64_t n = heads.integer(0, 1 << 20);
      types.push_back(n == 0 ? "conv" : "full_attention");
      if (n > 0) c["num_key_value_heads"] = n;
    }
    c["layer_types"] = std::move(types);
    if (is("lfm2")) {
      c["block_auto_adjust_ff_dim"] = false;
      return;
    }
    if (const Json* n = take("leading_dense_block_count")) c["num_dense_layers"] = *n;
    c["routed_scaling_factor"] = keys_.expert_weights_scale();
    const auto& tensors = checkpoint_.tensors();
    c["use_expert_bias"] = std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return tensor.first.ends_with(".exp_probs_b.bias");
    });
  }

  // OLMo 3 has a window, and one base of the rotation with it and without.
  void read_olmo3() {
    config_["model_type"] = "olmo3";
    const Json* const base = take("rope.freq_base_swa");
    const Json* const other = config_.find("rope_theta");
    if (base != nullptr && (other == nullptr || *base != *other)) fail_key("rope.freq_base_swa");
  }

  void read_gpt_oss() {
    config_["num_local_experts"] = config_["num_experts"];
    config_.erase("num_experts");
    config_.erase("moe_intermediate_size");  // a duplicate
    if (config_.contains("rope_scaling")) config_["rope_scaling"]["truncate"] = false;
  }

  // Hard-coded in llama.cpp: the score scale of the largest model, and norms that already include
  // the 1.
  void read_gemma() {
    Json& c = config_;
    c["hidden_act"] = "gelu_pytorch_tanh";
    c["norms_hold_one"] = true;
    if (is("gemma")) return;
    const double heads = std::max(node("attention.head_count").number(), 1.0);
    const bool largest = node("block_count").number() == (is("gemma2") ? 46 : 62);
    // default of llama.cpp
    if (is("gemma3") && !c.contains("sliding_window")) c["sliding_window"] = 0;
    c["query_pre_attn_scalar"] =
        largest ? node("embedding_length").number() / heads : node("attention.key_length").number();
    for (const auto& [gguf, key] : {std::pair{"rope.freq_base_swa", "rope_local_base_freq"},
                                    {"attn_logit_softcapping", "attn_logit_softcapping"},
                                    {"final_logit_softcapping", "final_logit_softcapping"}}) {
      if (const Json* value = take(gguf)) c[key] = *value;
    }
  }

  // They are counted with the other layers.
  void read_prediction_layers() {
    const bool further = take("nextn_predict_layers") != nullptr;
    const int64_t n = further ? node("nextn_predict_layers").integer(0, 64) : 0;
    config_["num_nextn_predict_layers"] = n;
    config_["num_hidden_layers"] = node("block_count").integer(n + 1, 4096) - n;
  }

  void read_glm4() {
    read_deepseek_experts();
    read_prediction_layers();
    config_["use_qk_norm"] = has_any("blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight");
  }

  void read_groups() {
    const Json* const groups = take("expert_group_count");
    const Json* const top = take("expert_group_used_count");
    config_["n_group"] = groups == nullptr ? Json(1) : *groups;
    config_["topk_group"] = top == nullptr ? Json(1) : *top;
  }

  // Ling; which biases there are is said by the tensors alone.
  void read_bailing() {
    Json& c = config_;
    read_deepseek_experts();
    read_prediction_layers();
    c["use_qkv_bias"] = find("blk.0.attn_qkv.bias") != nullptr || c.contains("attention_bias");
    c.erase("attention_bias");
    c["use_bias"] = find("blk.0.attn_output.bias") != nullptr;
    if (const Json* width = take("rope.dimension_count"); is("bailingmoe")) {
      if (width != nullptr && !c.contains("head_dim")) c["head_dim"] = *width;
      return;
    }
    read_groups();
    c["use_qk_norm"] = has_any("blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight");
    read_shared_width();
  }

  // The width of one shared expert, as the key for it has been written in two ways.
  void read_shared_width() {
    Json& c = config_;
    const Json* const shared = c.find("n_shared_experts");
    const Json* const first = c.find("first_k_dense_replace");
    const int64_t n = shared == nullptr ? 0 : node("expert_shared_count").integer(0, 1 << 16);
    const int64_t l = first == nullptr ? 0 : node("leading_dense_block_count").integer(0, 4096);
    const std::string name = "blk." + std::to_string(l) + ".ffn_gate_shexp.weight";
    const SourceTensor* const gate = find(name.c_str());
    if (n == 0 || gate == nullptr || gate->shape.empty()) return;
    c["moe_shared_expert_intermediate_size"] = gate->shape[0] / n;
  }

  // llama.cpp's name is for 1bitLLM's models, bitnet.cpp's two are for BitNet b1.58 2B-4T. All
  // multiply ternary weights, however stored, with 8-bit activations per token.
  void read_bitnet() {
    if (is("bitnet")) {
      config_["weight_bits"] = 1;
      return;
    }
    config_["hidden_act"] = "relu2";
    config_["quantization_config"] = {{"quant_method", "bitnet"},
                                      {"linear_class", "autobitlinear"},
                                      {"quantization_mode", "online"}};
  }

  // Multi-head latent attention. Newer files describe it as llama.cpp computes it, as one head on
  // the latent, and have separate keys for the model's head sizes.
  void read_latent() {
    constexpr int64_t kMaxWidth = 1 << 20;
    Json& c = config_;
    const auto width = [&](const char* key) {
      (void)take(key);
      return node(key).integer(1, kMaxWidth);
    };
    const auto expect = [&](const char* key, int64_t value) {
      if (width(key) != value) fail_key(key);
    };
    const int64_t heads = width("attention.head_count"), latent = width("attention.kv_lora_rank");
    const int64_t rope = width("rope.dimension_count");
    const bool own = take("attention.key_length_mla") != nullptr;
    const char* const key = own ? "attention.key_length_mla" : "attention.key_length";
    const int64_t key_width = width(key);
    if (key_width <= rope) fail_key(key);
    expect("attention.head_count_kv", own ? 1 : heads);
    if (own) {
      expect("attention.key_length", latent + rope);
      expect("attention.value_length", latent);
    }
    c["num_key_value_heads"] = heads;
    c["kv_lora_rank"] = latent;
    c["qk_rope_head_dim"] = rope;
    c["qk_nope_head_dim"] = key_width - rope;
    c["v_head_dim"] = width(own ? "attention.value_length_mla" : "attention.value_length");
    c.erase("head_dim");
    read_deepseek_experts();
  }

  // V3 and its successors share this architecture, with another router.
  void read_deepseek() {
    Json& c = config_;
    read_latent();
    if (const Json* rank = take("attention.q_lora_rank")) c["q_lora_rank"] = *rank;
    const Json* const gate = take("expert_gating_func");
    // Files of GLM-4.7-Flash lack the key; V2's softmax has no biases.
    const bool sigmoid = gate == nullptr ? has_selection_bias() : *gate == 2;
    if (gate != nullptr && !sigmoid && *gate != 1) fail_key("expert_gating_func");
    read_groups();
    const Json* const norm = take("expert_weights_norm");
    c["norm_topk_prob"] = norm == nullptr ? Json(false) : *norm;
    read_prediction_layers();
    if (sigmoid) c["model_type"] = "deepseek_v3";
    if (!sigmoid && c["n_group"] != 1) c["topk_method"] = "group_limited_greedy";
  }

  bool has_selection_bias() const {
    const auto& tensors = checkpoint_.tensors();
    return std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
      return entry.first.find(".exp_probs_b.") != std::string::npos;
    });
  }

  void read_deepseek_experts() {
    Json& c = config_;
    if (!c.contains("num_experts")) {
      fail(MOE_ERR_UNSUPPORTED, "%s: %s without experts", checkpoint_.path().c_str(), arch_.name);
    }
    c["n_routed_experts"] = c["num_experts"];
    c.erase("num_experts");
    c.erase("shared_expert_intermediate_size");  // of all shared experts together
    for (const auto& [gguf, key] : {std::pair{"expert_shared_count", "n_shared_experts"},
                                    {"leading_dense_block_count", "first_k_dense_replace"}}) {
      if (const Json* value = take(gguf)) c[key] = *value;
    }
    c["routed_scaling_factor"] = keys_.expert_weights_scale();
  }

  // Values that older files leave to the shapes.
  void read_shapes() {
    Json& c = config_;
    const auto rows = [&](const char* tensor, size_t axis, const char* key) {
      const SourceTensor* t = find(tensor);
      if (t != nullptr && t->shape.size() > axis && !c.contains(key)) c[key] = t->shape[axis];
    };
    rows("token_embd.weight", 0, "vocab_size");
    (void)take("vocab_size");
    if (c.contains("num_experts")) rows("blk.0.ffn_gate_exps.weight", 1, "moe_intermediate_size");
    rows("blk.0.ffn_gate_shexp.weight", 0, "shared_expert_intermediate_size");
    const std::string type = c.at("model_type").text();
    if (type == "minimax_m2" || type == "minimax" || type == "mixtral" || type == "granitemoe" ||
        type == "olmoe" || type == "phimoe") {
      if (c.contains("moe_intermediate_size")) c["intermediate_size"] = c["moe_intermediate_size"];
      c.erase("moe_intermediate_size");
    }
    const bool biased = has_any("blk.0.attn_q.bias", "blk.0.attn_k.bias");
    if (type == "gpt_oss") {
      c["attention_bias"] = biased;
    } else if (type != "qwen2" && type != "qwen2_moe" && type != "maple" && biased) {
      c["attention_bias"] = true;
    }
    if (type == "qwen2_moe") c["qkv_bias"] = biased;
    if (find("blk.0.ffn_gate.bias") != nullptr) c["mlp_bias"] = true;
    if (is("phimoe")) c["lm_head_bias"] = find("output.bias") != nullptr;
  }

  void read_rope() {
    if (!is("deepseek2") && !has_kimi_rule()) read_rotated_part();
    if (is("phimoe") || is("phi3")) return read_longrope();
    if (find("rope_freqs.weight") != nullptr) return read_frequency_factors();
    read_scaling();
  }

  void read_rotated_part() {
    Json& c = config_;
    if (const Json* dims = take("rope.dimension_count")) {
      const double heads = node("attention.head_count").number();
      const double head_dim = c.contains("head_dim")
                                  ? node("attention.key_length").number()
                                  : node("embedding_length").number() / std::max(heads, 1.0);
      double factor = dims->is_number() ? dims->get<double>() / head_dim : 1;
      // The product is truncated, and may be rounded to less than the number that it stands for.
      if (factor < 1 && std::trunc(head_dim * factor) < dims->get<double>()) {
        factor = std::nextafter(factor, 1.0);
      }
      if (factor != 1 || is("glm4moe") || is_qwen_rule()) c["partial_rotary_factor"] = factor;
    } else if (is_qwen_rule()) {
      c["partial_rotary_factor"] = 1;  // llama.cpp's default
    }
    if (const Json* value = take("attention.value_length"); value != nullptr) {
      const Json* width = config_.find("head_dim");
      if (width != nullptr && *value != *width) fail_key("attention.value_length");
    }
  }

  void read_scaling() {
    const Json* type = take("rope.scaling.type");
    (void)take("rope.scaling.finetuned");
    (void)take("rope.scaling.original_context_length");  // without scaling it changes nothing
    if (type == nullptr || *type == "none") return;
    if (*type != "linear" && *type != "yarn") fail_key("rope.scaling.type");
    Json scaling = {{"rope_type", *type}};
    for (const auto& [gguf, key] :
         {std::pair{"rope.scaling.factor", "factor"},
          {"rope.scaling.original_context_length", "original_max_position_embeddings"},
          {"rope.scaling.yarn_attn_factor", "attention_factor"},
          {"rope.scaling.yarn_beta_fast", "beta_fast"},
          {"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
      if (const Json* value = take(gguf)) scaling[key] = *value;
    }
    if (*type == "linear") scaling.erase("original_max_position_embeddings");
    if (is("deepseek2") && *type == "yarn") read_strength(&scaling);
    config_["rope_scaling"] = std::move(scaling);
  }

  // The file has one of mscale and mscale_all_dim, which are equal in all published models.
  void read_strength(Json* scaling) {
    const char* const key = "rope.scaling.yarn_log_multiplier";
    if (take(key) == nullptr) return;
    const double strength = node(key).number() * 10;
    (*scaling)["mscale"] = (*scaling)["mscale_all_dim"] = strength;
  }

  // Llama 3's scaling is stored as a divisor per frequency, like longrope's.
  void read_frequency_factors() {
    const std::vector<float> factors = read_factors("rope_freqs.weight");
    config_["rope_scaling"] = {{"rope_type", "longrope"},
                               {"short_factor", factors},
                               {"long_factor", factors},
                               {"attention_factor", 1.0}};
  }

  // Older files lack the type; all lack one of the checkpoint's scales, and the file's attn_factor
  // is derived from the two context lengths by llama.cpp's converter.
  void read_longrope() {
    const Json* type = take("rope.scaling.type");
    const Json* original = take("rope.scaling.original_context_length");
    const Json* strength = take("rope.scaling.attn_factor");
    const bool scaled = has_any("rope_factors_long.weight", "rope_factors_short.weight") ||
                        (type != nullptr && *type == "longrope");
    if (type != nullptr && *type != (scaled ? "longrope" : "none")) fail_key("rope.scaling.type");
    if (!scaled) {
      if (strength != nullptr && *strength != 1.0) fail_key("rope.scaling.attn_factor");
      return;
    }
    config_["rope_scaling"] = {{"rope_type", "longrope"},
                               {"short_factor", read_factors("rope_factors_short.weight")},
                               {"long_factor", read_factors("rope_factors_long.weight")},
                               {"attention_factor", strength == nullptr ? Json(1.0) : *strength}};
    if (original != nullptr) {
      config_["rope_scaling"]["original_max_position_embeddings"] = *original;
      if (is("phi3")) config_["original_max_position_embeddings"] = *original;
    }
  }

  std::vector<float> read_factors(const char* name) const {
    const SourceTensor* tensor = find(name);
    if (tensor == nullptr) {
      fail(MOE_ERR_FORMAT, "%s: no tensor %s", checkpoint_.path().c_str(), name);
    }
    if (tensor->n_elements > 4096) {
      fail(MOE_ERR_SHAPE, "tensor %s: %s", name, shape_text(tensor->shape).c_str());
    }
    std::vector<float> factors(static_cast<size_t>(tensor->n_elements));
    checkpoint_.read(*tensor, 0, factors.size(), factors.data());
    return factors;
  }

  void read_windows() {
    const Json* const pattern = take("attention.sliding_window_pattern");
    if (pattern != nullptr && pattern->is_number()) {
      config_["sliding_window_pattern"] = *pattern;
    } else if (pattern != nullptr) {
      Json types = Json::array();
      for (const JsonNode& slides : node("attention.sliding_window_pattern").elements()) {
        types.push_back(slides.boolean() ? "sliding_attention" : "full_attention");
      }
      config_["layer_types"] = std::move(types);
    }
    if (is("bailingmoe3") || take("swiglu_clamp_exp") == nullptr) return;
    const std::vector<JsonNode> limits = node("swiglu_clamp_exp").elements();
    for (const JsonNode& limit : limits) {
      if (limit.value() != limits[0].value()) fail_key("swiglu_clamp_exp");
      config_["swiglu_limit"] = limit.number();
    }
  }

  void read_tokens() {
    config_["eos_token_id"] = gguf_stop_ids(all_);
    if (all_.has("tokenizer.ggml.bos_token_id")) {
      config_["bos_token_id"] = all_.at("tokenizer.ggml.bos_token_id").value();
    }
  }

  // Keys with one supported value.
  void check_constants() {
    const auto require = [&](const char* key, const Json& value) {
      const Json* found = take(key);
      if (found != nullptr && *found != value) fail_key(key);
    };
    const bool own_experts = is("nemotron_h") || is("nemotron_h_moe") || has_kimi_rule();
    const bool sigmoid =
        is("minimax-m2") || is("glm4moe") || is("bailingmoe2") || is("lfm2moe") || own_experts;
    if (!is("deepseek2")) require("expert_gating_func", sigmoid ? 2 : 1);
    require("use_parallel_residual", false);
    require("attention.causal", true);
    (void)take("pooling_type");  // read_gguf_pooling
    if (is("glm4moe")) {
      require("expert_group_count", 1);
      require("expert_group_used_count", 1);
    } else if (!is("deepseek2") && !is_bailing() && !is_lfm2() && !own_experts) {
      if (keys_.expert_weights_scale() != 1.0) fail_key("expert_weights_scale");
      require("leading_dense_block_count", 0);
      require("expert_shared_count", 0);
    }
    const Json* const norm = take("expert_weights_norm");
    if (norm != nullptr && !is("deepseek2")) config_["norm_topk_prob"] = *norm;
  }

  [[noreturn]] void fail_key(const std::string& key) const { keys_.fail_key(key); }

  const Checkpoint& checkpoint_;
  GgufKeys keys_;
  const JsonNode& all_;
  const Arch& arch_;
  Json config_ = Json::object();
};

}  // namespace

std::string gguf_key(const std::string& key) {
  for (const Key& k : kKeys) {
    if (key == k.transformers) return k.gguf;
  }
  return "";
}

std::string place_in_gguf(const Checkpoint& checkpoint, const std::string& key) {
  if (checkpoint.metadata().is_null()) return "";
  const std::string place = checkpoint.path() + ": key ", own = gguf_key(key);
  if (own.empty()) return place + key;
  return place + checkpoint.metadata().at("general.architecture").text() + "." + own;
}

bool gguf_reads(std::string_view architecture) {
  return std::any_of(std::begin(kArchs), std::end(kArchs),
                     [&](const Arch& arch) { return architecture == arch.name; });
}

Json gguf_config(const Checkpoint& checkpoint) { return ConfigBuilder(checkpoint).build(); }

}  // namespace moe
