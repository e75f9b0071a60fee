// SPDX-License-Identifier: MIT
// Gemma 4 (Gemma team 2026), of models that see images or hear sounds the text part: norms around
// each block, another head size in layers without a window, values that are normed and may be the
// keys, a factor on each layer's result, experts beside a dense network with own norms, and in
// small models embeddings for each layer and last layers that see the keys of others.

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::gemma4 {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

constexpr Place kGateHalf = {.stacked = true, .parts = 2, .part = 0};
constexpr Place kUpHalf = {.stacked = true, .parts = 2, .part = 1};
constexpr Place kStacked = {.stacked = true};

constexpr TensorName kExperts[] = {
    {"moe.shared.gate.weight", "mlp.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.down_proj.weight"},
    {"moe.shared.out_norm.weight", "post_feedforward_layernorm_1.weight"},
    {"moe.experts_norm.weight", "pre_feedforward_layernorm_2.weight"},
    {"moe.experts_out_norm.weight", "post_feedforward_layernorm_2.weight"},
    {"moe.router.norm.weight", "router.scale"},
    {"moe.router.weight", "router.proj.weight"},
    {"moe.expert_scale", "router.per_expert_scale"},
    {"moe.experts.gate.weight", "experts.gate_up_proj", kGateHalf},
    {"moe.experts.up.weight", "experts.gate_up_proj", kUpHalf},
    {"moe.experts.down.weight", "experts.down_proj", kStacked},
    {"moe.experts.gate.weight", "experts.{e}.gate_proj.weight"},
    {"moe.experts.up.weight", "experts.{e}.up_proj.weight"},
    {"moe.experts.down.weight", "experts.{e}.down_proj.weight"}};

constexpr TensorName kLayerInputs[] = {
    {"layer_inputs.weight", "model.embed_tokens_per_layer.weight"},
    {"layer_inputs.proj.weight", "model.per_layer_model_projection.weight"},
    {"layer_inputs.norm.weight", "model.per_layer_projection_norm.weight"},
    {"layer_input.in.weight", "per_layer_input_gate.weight"},
    {"layer_input.out.weight", "per_layer_projection.weight"},
    {"layer_input_out_norm.weight", "post_per_layer_input_norm.weight"}};

// Keys that other models have for all layers; `transformers` does not read them for this one.
constexpr const char* kRopeOfAll[] = {"partial_rotary_factor", "rope_scaling"};

bool slides(const LayerConfig& layer) { return layer.attention.window > 0; }

// config.json with the keys of other decoders, and what files may leave to the defaults of
// `transformers`.
RenamedConfig as_others(const JsonNode& config) {
  RenamedConfig c(config);
  const std::pair<const char*, Json> defaults[] = {{"hidden_activation", "gelu_pytorch_tanh"},
                                                   {"tie_word_embeddings", true},
                                                   {"head_dim", 256},
                                                   {"hidden_size_per_layer_input", 256},
                                                   {"vocab_size_per_layer_input", 262144},
                                                   {"sliding_window", 512},
                                                   {"rms_norm_eps", 1e-6},
                                                   {"bos_token_id", 2},
                                                   {"eos_token_id", 1},
                                                   {"pad_token_id", 0}};
  for (const auto& [key, value] : defaults) {
    if (!config.value().contains(key)) c.fallback(key, value);
  }
  c.rename("hidden_activation", "hidden_act");
  Json local = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  Json whole = {
      {"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}};
  if (config.has("rope_parameters")) {
    const JsonNode both = config.at("rope_parameters");
    both.only({"full_attention", "sliding_attention"});
    if (both.has("sliding_attention")) local = both.at("sliding_attention").value();
    if (both.has("full_attention")) whole = both.at("full_attention").value();
  }
  for (const char* key : kRopeOfAll) c.erase(key);
  c.put(JsonNode(local, config.path() + ": rope_parameters.sliding_attention"),
        "rope_parameters");  // the decoder wants one
  c.json()["rope_local"] = std::move(local);
  c.json()["rope_whole"] = std::move(whole);
  return c;
}

// Files of models with more than ten layers have zeros before the index: "05".
size_t layer_index(const JsonNode& node, const std::string& key, size_t n_layers) {
  size_t l = n_layers;
  const char* const end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data(), end, l);
  if (error == std::errc() && rest == end && l < n_layers) return l;
  fail(MOE_ERR_FORMAT, "%s: expected the index of a layer, 0 to %zu, found \"%.60s\"",
       node.path().c_str(), n_layers - 1, key.c_str());
}

// Head sizes of the layers without a window: published files have two keys for all of them, those
// of transformers 5.24 and later a list by layer.
void read_whole_heads(Decoder* d, bool k_eq_v) {
  ConfigKeys& keys = d->keys;
  const int32_t n_heads = d->layer(0).attention.n_heads;
  const int32_t head_dim = keys.integer("global_head_dim", 512, 1, kMaxWidth);
  const int32_t n_kv =
      keys.integer("num_global_key_value_heads", d->layer(0).attention.n_kv_heads, 1, n_heads);
  const bool listed = keys.has("per_layer_config");
  for (LayerConfig& layer : d->layers()) {
    if (slides(layer) || listed) continue;
    layer.attention.head_dim = head_dim;
    if (k_eq_v) layer.attention.n_kv_heads = n_kv;
  }
  if (!listed) return;
  const JsonNode list = keys.node("per_layer_config");
  std::set<size_t> seen;
  if (!list.value().is_object()) list.fail_expected("an object");
  for (const auto& [key, unused] : list.value().items()) {
    const size_t l = layer_index(list, key, d->layers().size());
    const JsonNode own = list.at(key.c_str());
    if (!seen.insert(l).second) {
      fail(MOE_ERR_FORMAT, "%s: layer %zu is there twice", own.path().c_str(), l);
    }
    own.only({"head_dim", "num_key_value_heads"});
    AttentionConfig& a = d->layer(l).attention;
    a.head_dim = own.integer("head_dim", a.head_dim, 1, kMaxWidth);
    a.n_kv_heads = own.integer("num_key_value_heads", a.n_kv_heads, 1, n_heads);
  }
}

// The share of dimensions that turn is proportional's; `transformers` ignores it in layers of the
// default type and fails with others.
Json without_share(const JsonNode& node, Decoder* d) {
  Json rope = node.value();
  const char* const key = "partial_rotary_factor";
  if (!node.has(key) || node.at(key).value() == 1) return rope;
  const char* const type = node.has("rope_type") ? "rope_type" : "type";
  const bool is_default = !node.has(type) || node.at(type).value() == "default";
  if (!is_default && node.at(type).value() == "proportional") return rope;
  if (!is_default) fail_value(node.at(key), "only the type proportional has one other than 1");
  d->keys.warn(node.member_path(key) +
               " is not used: it has no meaning for the type default of this architecture");
  rope.erase(key);
  return rope;
}

// By layer, since heads differ.
void read_ropes(Decoder* d, const char* key, bool local, Imported* out) {
  const Json both = d->keys.node(key).value();
  const Spellings spellings = {
      {{"rope_parameters",
        std::string("rope_parameters.") + (local ? "sliding" : "full") + "_attention"}},
      {}};
  const JsonNode named(both, d->keys.file() + ": " + spellings.in_file.at("rope_parameters"));
  const Json rope = {{"rope_parameters", without_share(named, d)}};
  const JsonNode node(rope, d->keys.file(), spellings);
  bool first = !local;  // the decoder has the findings of the local ones
  for (LayerConfig& layer : d->layers()) {
    if (slides(layer) != local) continue;
    AttentionConfig& a = layer.attention;
    ConfigKeys keys(node);
    a.rope = read_rope(keys, a.head_dim, d->config().context_length, 0, &out->factors);
    if (first) d->keys.take_findings(keys);
    first = false;
  }
}

// The last layers see the keys and values of the last one before them that is of their kind.
void share_keys(Decoder* d) {
  const auto n_layers = static_cast<int32_t>(d->layers().size());
  const int32_t n_shared = d->keys.integer("num_kv_shared_layers", 0, 0, n_layers - 1);
  const bool wide = d->keys.boolean("use_double_wide_mlp", false);
  for (int32_t l = n_layers - n_shared; l < n_layers; ++l) {
    LayerConfig& layer = d->layer(static_cast<size_t>(l));
    int32_t source = n_layers - n_shared - 1;
    while (source >= 0 && slides(d->layer(static_cast<size_t>(source))) != slides(layer)) --source;
    if (source < 0) {
      fail(MOE_ERR_UNSUPPORTED,
           "config.json: num_kv_shared_layers: %d: no layer before them has keys of the kind of "
           "layer %d",
           n_shared, l);
    }
    layer.attention.kv_layer = source;
    layer.attention.v_norm = layer.attention.v_from_k = false;
    if (wide) (layer.ffn.kind == FfnKind::kMoe ? layer.ffn.moe.shared.d_ff : layer.ffn.d_ff) *= 2;
    const std::string prefix = "model.layers." + std::to_string(l) + ".self_attn.";
    for (const char* part : {"k_proj.*", "v_proj.*", "k_norm.*"}) {
      d->ignore_tensors((prefix + part).c_str());
    }
  }
}

void set_attention(Decoder* d) {
  d->qk_norm(QkNorm::kHead);
  d->attention_bias("attention_bias", false);
  d->window_except_every(6);
  LayerConfig& last = d->layer(d->layers().size() - 1);
  if (slides(last)) {
    d->keys.warn(
        "the last layer has full attention, whatever layer_types says: transformers does the same");
    last.attention.window = 0;
  }
  const bool k_eq_v = d->keys.boolean("attention_k_eq_v", false);
  for (LayerConfig& layer : d->layers()) {
    layer.attention.multiplier = 1;
    layer.attention.v_norm = true;
    layer.attention.v_from_k = k_eq_v && !slides(layer);
  }
  read_whole_heads(d, k_eq_v);
  if (!d->keys.has("use_bidirectional_attention")) return;
  const JsonNode both_ways = d->keys.node("use_bidirectional_attention");
  if (both_ways.value() != "vision") fail_value(both_ways, "null and \"vision\" are");
}

void set_experts(Decoder* d) {
  ConfigKeys& keys = d->keys;
  if (!keys.boolean("enable_moe_block", false)) {
    keys.ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
    return d->names(mlp_names());
  }
  d->names(kExperts);
  for (LayerConfig& layer : d->layers()) {
    FfnConfig& ffn = layer.ffn;
    ffn.kind = FfnKind::kMoe;
    ffn.moe.shared.d_ff = ffn.d_ff;
    ffn.d_ff = keys.integer("moe_intermediate_size", 1, kMaxWidth);
    ffn.moe.n_experts = keys.integer("num_experts", 1, 1 << 16);
    ffn.moe.router.kind = RouterKind::kSoftmax;
    ffn.moe.router.weights = RouterWeights::kRenormalised;
    ffn.moe.router.k = keys.integer("top_k_experts", 1, ffn.moe.n_experts);
    ffn.moe.apart = ffn.moe.router_norm = ffn.moe.expert_scale = true;
  }
}

// The factor of a layer's result is a tensor of one number.
void read_multipliers(const Checkpoint& checkpoint, Imported* out) {
  for (size_t l = 0; l < out->config.layers.size(); ++l) {
    const std::string name = "model.layers." + std::to_string(l) + ".layer_scalar";
    const SourceTensor* const tensor = checkpoint.find(name);
    if (tensor == nullptr && checkpoint.tensors().empty()) return;  // a config.json alone
    if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
    if (tensor->n_elements != 1) {
      fail(MOE_ERR_SHAPE, "tensor %s: expected one number, found %llu", name.c_str(),
           static_cast<unsigned long long>(tensor->n_elements));
    }
    checkpoint.read(*tensor, 0, 1, &out->config.layers[l].multiplier);
    out->ignored.push_back(name);
  }
}

// The router divides what it reads by sqrt(d_model), too.
void scale_router_norms(Imported* out) {
  const float factor = 1 / __builtin_sqrtf(static_cast<float>(out->config.d_model));
  out->locate = [locate = std::move(out->locate), factor](const SlotGroup& group,
                                                          const Slot& slot) {
    Source source = locate(group, slot);
    const bool router = group.part == Part::kRouter && slot.role == Role::kNorm;
    if (router) source.factors = {{slot.rows, factor}};
    return source;
  };
}

// The projection is divided by sqrt(d_model) before its norm, which is the same as a norm with an
// eps of d_model times the model's; and the sum of both parts by sqrt(2).
void set_layer_input(Decoder* d) {
  ModelConfig& c = d->config();
  const int32_t width = d->keys.integer("hidden_size_per_layer_input", 0, 0, kMaxWidth);
  if (width == 0) return d->keys.ignore({"vocab_size_per_layer_input"});
  const int32_t vocab = d->keys.integer("vocab_size_per_layer_input", 262144, 1, 1 << 24);
  if (vocab != c.vocab_size) {
    fail_value(d->keys.node("vocab_size_per_layer_input"),
               "only that of vocab_size, " + std::to_string(c.vocab_size) + ", is");
  }
  d->names(kLayerInputs);
  c.layer_input.width = width;
  c.layer_input.act = d->layer(0).ffn.act.kind;
  c.layer_input.multiplier = __builtin_sqrtf(static_cast<float>(width) / 2);
  c.layer_input.projection_multiplier = __builtin_sqrtf(0.5f);
  c.layer_input.projection_eps = c.norm_eps * static_cast<float>(c.d_model);
}

Imported import_gemma4(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig renamed = as_others(config);
  const JsonNode node = renamed.node();
  Decoder d(node, checkpoint);
  set_layer_input(&d);
  d.out_norms(true);
  d.replace_name({"ffn_norm.weight", "pre_feedforward_layernorm.weight"});
  set_attention(&d);
  set_experts(&d);
  share_keys(&d);
  d.config().embedding_multiplier = __builtin_sqrtf(static_cast<float>(d.config().d_model));
  if (d.keys.has("final_logit_softcapping")) {
    const float cap = d.keys.number("final_logit_softcapping");
    if (!(cap > 0 && cap <= 1000)) {
      fail_value(d.keys.node("final_logit_softcapping"), "a number above 0 and at most 1000 is");
    }
    d.config().logit_cap = cap;
  }
  Imported rope;
  read_ropes(&d, "rope_local", true, &rope);
  read_ropes(&d, "rope_whole", false, &rope);
  for (const char* key : kRopeOfAll) {
    if (config.has(key)) d.keys.unknown(key, config.at(key).value());
  }
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  std::move(rope.factors.begin(), rope.factors.end(), std::back_inserter(out.factors));
  read_multipliers(checkpoint, &out);
  scale_router_norms(&out);
  return out;
}

Imported import_with_images(const JsonNode& config, const Checkpoint& checkpoint) {
  RenamedConfig c(config.at("text_config"));
  c.take_beside(config, "eos_token_id", 1);
  c.take_beside(config, "bos_token_id", 2);
  c.take_beside(config, "pad_token_id", 0);
  c.take_beside(config, "quantization_config");
  c.take_beside(config, "tie_word_embeddings", true);
  ConfigKeys keys(config);
  keys.ignore({"text_config", "vision_config", "audio_config", "boi_token_id", "eoi_token_id",
               "image_token_id", "video_token_id", "boa_token_id", "eoa_token_id",
               "eoa_token_index", "audio_token_id", "vision_soft_tokens_per_image", "eos_token_id",
               "bos_token_id", "pad_token_id", "tie_word_embeddings", "quantization_config"});
  keys.check_all_understood();
  Imported out = import_gemma4(c.node(), checkpoint);
  out.ignored.insert(out.ignored.end(), {"vision_tower.*", "model.embed_vision.*",
                                         "model.audio_tower.*", "model.embed_audio.*"});
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"gemma4_text", import_gemma4},
                                       {"gemma4", import_with_images}};
  return kRows;
}

}  // namespace moe::arch::gemma4
