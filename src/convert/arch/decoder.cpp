// SPDX-License-Identifier: MIT
// Reads sizes, norms, attention, RoPE and FFN from the common keys, and locates the tensors by
// their common names.
#include "src/convert/arch/decoder.h"

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/arch/copies.h"
#include "src/convert/gguf/gguf_source.h"

namespace moe {
namespace {

constexpr TensorName kOutNorms[] = {
    {"attention_out_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_out_norm.weight", "post_feedforward_layernorm.weight"}};

// BitNet's embedding models and BitLinear in transformers have these.
constexpr TensorName kInNorms[] = {
    {"attention.q_in_norm.weight", "self_attn.q_proj.norm.weight"},
    {"attention.k_in_norm.weight", "self_attn.k_proj.norm.weight"},
    {"attention.v_in_norm.weight", "self_attn.v_proj.norm.weight"},
    {"attention.sub_norm.weight", "self_attn.o_proj.norm.weight"},
    {"ffn.gate_in_norm.weight", "mlp.gate_proj.norm.weight"},
    {"ffn.up_in_norm.weight", "mlp.up_proj.norm.weight"},
    {"ffn.sub_norm.weight", "mlp.down_proj.norm.weight"},
    {"attention.q_in_norm.weight", "self_attn.q_proj.rms_norm.weight"},
    {"attention.k_in_norm.weight", "self_attn.k_proj.rms_norm.weight"},
    {"attention.v_in_norm.weight", "self_attn.v_proj.rms_norm.weight"},
    {"attention.sub_norm.weight", "self_attn.o_proj.rms_norm.weight"},
    {"ffn.gate_in_norm.weight", "mlp.gate_proj.rms_norm.weight"},
    {"ffn.up_in_norm.weight", "mlp.up_proj.rms_norm.weight"},
    {"ffn.sub_norm.weight", "mlp.down_proj.rms_norm.weight"}};

constexpr const char* kHeadTensor = "lm_head.weight";
constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxRows = 1 << 24;
constexpr int32_t kMaxContext = 1 << 24;
constexpr int32_t kMaxVocab = 1 << 24;

void push_eos(const JsonNode& node, ModelConfig* config) {
  const auto id = static_cast<int32_t>(node.integer(-1, kMaxVocab));
  for (const int32_t known : config->eos_token_ids) {
    if (known == id) return;
  }
  if (id >= 0) check(config->eos_token_ids.push(id));
}

}  // namespace

void read_eos(const JsonNode& node, ModelConfig* config) {
  if (!node.value().is_array()) return push_eos(node, config);
  for (const JsonNode& id : node.elements()) push_eos(id, config);
}

bool has_tensors(const Checkpoint& checkpoint, const std::string& start) {
  const auto first = checkpoint.tensors().lower_bound(start);
  return first != checkpoint.tensors().end() && first->first.starts_with(start);
}

Decoder::Decoder(const JsonNode& config, const Checkpoint& checkpoint, float default_theta,
                 float default_eps)
    : keys(config), checkpoint_(checkpoint) {
  read_sizes(default_theta, default_eps);
  read_special_tokens();
  out_.ignored.push_back("*.rotary_emb.inv_freq");
  if (out_.config.tie_embeddings) {
    check_copy(checkpoint, kHeadTensor, "model.embed_tokens.weight",
               "tie_word_embeddings to false");
    out_.ignored.push_back(kHeadTensor);
  }
  table_.add(decoder_names());
}

void Decoder::read_sizes(float default_theta, float default_eps) {
  ModelConfig& c = out_.config;
  c.vocab_size = keys.integer("vocab_size", 1, kMaxVocab);
  c.d_model = keys.integer("hidden_size", 1, kMaxWidth);
  c.context_length = keys.integer("max_position_embeddings", 1, kMaxContext);
  c.norm_eps = keys.eps("rms_norm_eps", default_eps);
  c.tie_embeddings = keys.boolean("tie_word_embeddings", false);
  keys.require("is_encoder_decoder", false);
  keys.require("use_mrope", false);

  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.n_heads = keys.integer("num_attention_heads", 1, kMaxWidth);
  a.n_kv_heads = keys.integer("num_key_value_heads", a.n_heads, 1, a.n_heads);
  keys.check_divides("num_key_value_heads", a.n_kv_heads, "num_attention_heads", a.n_heads);
  if (!keys.has("head_dim")) {
    keys.check_divides("num_attention_heads", a.n_heads, "hidden_size", c.d_model,
                       ", and head_dim is missing");
  }
  a.head_dim = keys.integer_or_derived("head_dim", c.d_model / a.n_heads, 1, kMaxWidth);
  a.rope = read_rope(keys, a.head_dim, c.context_length, default_theta, &out_.factors);
  c.context_length = scaled_context(keys, a.rope, c.context_length);
  if (keys.boolean("rope_interleaved", false)) a.rope.kind = RopeKind::kInterleaved;
  layer.ffn.d_ff = keys.integer("intermediate_size", 0, 1, kMaxWidth);
  layer.ffn.gated = true;
  layer.ffn.act.kind = keys.activation("hidden_act");
  const int32_t n_layers = keys.integer("num_hidden_layers", 1, kMaxLayers);
  for (int32_t l = 0; l < n_layers; ++l) check(c.layers.push(layer));
}

void Decoder::read_special_tokens() {
  ModelConfig& c = out_.config;
  c.bos_token_id = keys.integer("bos_token_id", -1, -1, kMaxVocab);
  // Padding is not used at inference, and published files name ids outside the embedding.
  c.pad_token_id = keys.integer("pad_token_id", -1, -1, kMaxVocab);
  if (c.pad_token_id >= c.vocab_size) c.pad_token_id = -1;
  if (keys.has("eos_token_id")) read_eos(keys.node("eos_token_id"), &c);
}

void Decoder::qkv_in_one(std::initializer_list<const char*> tensors) {
  const AttentionConfig& a = layer(0).attention;
  const int64_t q_rows = int64_t{a.n_heads} * a.head_dim;
  if (q_rows > kMaxRows) {
    fail(MOE_ERR_RANGE, "%s: %d of head_dim %d are too wide",
         keys.place("num_attention_heads").c_str(), a.n_heads, a.head_dim);
  }
  const auto q = static_cast<int32_t>(q_rows);
  const int32_t kv = a.n_kv_heads * a.head_dim;  // not more heads
  for (const char* tensor : tensors) {
    const bool bias = std::string_view(tensor).ends_with(".bias"),
               first = tensor == *tensors.begin();
    const TensorName rows[] = {
        {bias ? "attention.q.bias" : "attention.q.weight", tensor, {.behind = 2 * kv}},
        {bias ? "attention.k.bias" : "attention.k.weight", tensor, {.skipped = q, .behind = kv}},
        {bias ? "attention.v.bias" : "attention.v.weight", tensor, {.skipped = q + kv}}};
    for (const TensorName& row : rows) first ? replace_name(row) : name(row);
  }
}

void Decoder::attention_bias(const char* key, bool fallback) {
  if (!keys.boolean(key, fallback)) return;
  names(qkv_bias_names());
  names(o_bias_name());
}

void Decoder::mlp_bias() {
  if (keys.boolean("mlp_bias", false)) names(mlp_bias_names());
}

void Decoder::qk_norm(QkNorm kind) {
  names(qk_norm_names());
  for (LayerConfig& layer : layers()) layer.attention.qk_norm = kind;
}

void Decoder::out_norms(bool pre) {
  names(kOutNorms);
  for (LayerConfig& layer : layers()) {
    layer.attention.norms = layer.ffn.norms = {.pre = pre, .out = true};
  }
}

void Decoder::clip_qkv() {
  const float clip = keys.number("clip_qkv", 0);
  if (keys.has("clip_qkv") && !(clip > 0)) {
    fail_value(keys.node("clip_qkv"), "a number above 0 or null is");
  }
  for (LayerConfig& layer : layers()) layer.attention.qkv_clip = clip;
}

void Decoder::window(int32_t positions) {
  for (LayerConfig& layer : layers()) layer.attention.window = positions;
}

int32_t Decoder::sliding_window(int32_t fallback) {
  keys.ignore({"sliding_window"});
  if (!keys.contains("sliding_window")) return fallback;
  return keys.integer("sliding_window", 0, 0, kMaxContext);
}

// True if the checkpoint has the layer.
bool Decoder::skip_layer(int32_t layer, bool said) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  // Unless config.json mentions it, an ordinary excess layer is not a prediction layer.
  if (!said && checkpoint_.find(prefix + "eh_proj.weight") == nullptr) return false;
  ignore_tensors((prefix + "*").c_str());
  const bool there = has_tensors(checkpoint_, prefix);
  if (there) ++out_.n_skipped_layers;
  return there;
}

void Decoder::skip_prediction_layers(int32_t fallback) {
  const bool said = keys.has("num_nextn_predict_layers");
  const int32_t n = keys.integer("num_nextn_predict_layers", fallback, 0, 64);
  keys.ignore({"num_mtp_layers"});
  ignore_tensors("blk.*.nextn.*");  // GGUF's, with names that are not known
  for (int32_t l = 0; l < n; ++l) (void)skip_layer(out_.config.n_layers() + l, said);
}

// The layer has copies of the embedding and of the head.
bool Decoder::shares_tables(const std::string& prefix) {
  const char* const embedding = "model.embed_tokens.weight";
  const char* const head = out_.config.tie_embeddings ? embedding : kHeadTensor;
  return is_copy(checkpoint_, prefix + "embed_tokens.weight", embedding) &&
         is_copy(checkpoint_, prefix + "shared_head.head.weight", head);
}

void Decoder::prediction_layers(int32_t fallback) {
  static constexpr TensorName kNames[] = {
      {"prediction.next_norm.weight", "model.layers.{l}.enorm.weight"},
      {"prediction.next.weight", "model.layers.{l}.eh_proj.weight", {.col_parts = 2}},
      {"prediction.hidden_norm.weight", "model.layers.{l}.hnorm.weight"},
      {"prediction.hidden.weight",
       "model.layers.{l}.eh_proj.weight",
       {.col_parts = 2, .col_part = 1}},
      {"prediction.norm.weight", "model.layers.{l}.shared_head.norm.weight"}};
  const int32_t n_layers = out_.config.n_layers();
  const int32_t skipped = out_.n_skipped_layers;
  skip_prediction_layers(fallback);
  const std::string prefix = "model.layers." + std::to_string(n_layers) + ".";
  if (out_.n_skipped_layers == skipped || !has_tensors(checkpoint_, prefix)) return;
  const LayerConfig* const like = like_guessing(config());
  if (like == nullptr || !shares_tables(prefix)) {
    keys.warn(std::string("the layer that predicts further tokens is left out: ") +
              (like == nullptr ? "no other layer has attention"
                               : "it has an embedding or a head of its own"));
    return;
  }
  std::erase(out_.ignored, prefix + "*");
  --out_.n_skipped_layers;
  for (const char* copy : {"embed_tokens.weight", "shared_head.head.weight"}) {
    ignore_tensors((prefix + copy).c_str());
  }
  add_prediction(*like, {.names = kNames, .tensors = {prefix + "*"}});
}

void Decoder::add_prediction(const LayerConfig& like, PredictionLayer layer) {
  guessing_ = like;
  prediction_ = std::move(layer);
}

bool Decoder::window_by_layer_type(int32_t positions) {
  if (!keys.has("layer_types")) return false;
  const std::vector<JsonNode> types = keys.list("layer_types", layers().size());
  for (size_t l = 0; l < types.size(); ++l) {
    const bool sliding = types[l].choice({"full_attention", "sliding_attention"}) == 1;
    if (sliding && positions < 1) {
      fail(MOE_ERR_RANGE, "%s: it slides, but sliding_window is %d", types[l].path().c_str(),
           positions);
    }
    layer(l).attention.window = sliding ? positions : 0;
  }
  return true;
}

void Decoder::window_except_every(int32_t n) {
  const int32_t positions = sliding_window(4096);
  if (window_by_layer_type(positions)) return;
  for (size_t l = 0; l < layers().size(); ++l) {
    const bool whole = (l + 1) % static_cast<size_t>(n) == 0;
    layer(l).attention.window = whole ? 0 : positions;
  }
}

void Decoder::local_rope(const char* local_key) {
  const RopeConfig local = read_local_rope(keys, local_key, layer(0).attention.head_dim,
                                           out_.config.context_length, &out_.factors);
  for (LayerConfig& layer : layers()) {
    if (layer.attention.window != 0) layer.attention.rope = local;
  }
}

void read_expert_groups(ConfigKeys* keys, const char* count_key, int32_t n_groups,
                        int32_t top_groups, RouterConfig* router) {
  const int32_t n = keys->integer(count_key, 1, 1 << 16);
  router->n_groups = keys->integer("n_group", n_groups, 1, std::min(n, 1024));
  router->top_groups = keys->integer("topk_group", top_groups, 1, router->n_groups);
  keys->check_divides("n_group", router->n_groups, count_key, n);
  (void)keys->integer("num_experts_per_tok", 1, n / router->n_groups * router->top_groups);
}

void Decoder::experts(const char* count_key, const char* other_count_key, int32_t d_ff,
                      RouterWeights weights, const char* k_key) {
  const char* const key = keys.either(count_key, other_count_key);
  FfnConfig ffn = layer(0).ffn;
  ffn.kind = FfnKind::kMoe;
  ffn.d_ff = d_ff;
  ffn.moe.n_experts = keys.integer(key, 1, 1 << 16);
  ffn.moe.router.kind = RouterKind::kSoftmax;
  ffn.moe.router.weights = weights;
  ffn.moe.router.k = keys.integer(k_key, 1, ffn.moe.n_experts);
  for (LayerConfig& layer : layers()) layer.ffn = ffn;
}

void Decoder::quantization(Quantization accepted) {
  if (!keys.has("quantization_config")) return;
  const JsonNode node = keys.node("quantization_config");
  const JsonNode method = node.at("quant_method");
  const bool mxfp4 = accepted == Quantization::kMxfp4 && method.value() == "mxfp4";
  if (mxfp4 || method.is_null()) {  // null: unpacked already
    return keys.unknown_members(node, {"quant_method", "modules_to_not_convert"});
  }
  fail_value(method,
             "awq, bitnet, bitsandbytes, compressed-tensors, fp8, gptq, modelopt and quark are; or "
             "convert an unquantised checkpoint or a GGUF file of the model");
}

// Some files say of biases and windows what their architecture implies.
void Decoder::check_unread() {
  for (const char* key : {"attention_bias", "bias", "lm_head_bias", "mlp_bias", "qkv_bias"}) {
    if (!keys.knows(key)) keys.require(key, false);
  }
  if (keys.knows("layer_types")) return;
  const std::vector<JsonNode> types = keys.list("layer_types", layers().size());
  for (size_t l = 0; l < types.size(); ++l) {
    const bool slides = layer(l).attention.window > 0;
    const char* const only = slides ? "sliding_attention" : "full_attention";
    if (types[l].value() != only) fail_value(types[l], "only " + std::string(only) + " is");
  }
}

// Checks what several keys say together.
void Decoder::check_layers() {
  for (const LayerConfig& layer : layers()) {
    if (layer.has_ffn && layer.ffn.kind == FfnKind::kDense && layer.ffn.d_ff == 0) {
      (void)keys.integer("intermediate_size", 1, kMaxWidth);  // reports that it is missing
    }
    const AttentionConfig& a = layer.attention;
    const int32_t dims = a.rope.dims;
    if (!layer.has_attention || a.rope.kind == RopeKind::kNone) continue;
    if (dims >= 2 && dims % 2 == 0 && dims <= a.head_dim) continue;
    const char* key = keys.given("head_dim") ? "head_dim" : "hidden_size";
    if (keys.given("rotary_dim")) key = "rotary_dim";
    fail(MOE_ERR_SHAPE,
         "%s: %d of the %d numbers of each head are rotated, but this must be an even number of at "
         "least 2",
         keys.place(key).c_str(), dims, a.head_dim);
  }
}

void Decoder::read_in_norms() {
  const auto has = [this](const char* pattern) {
    const auto& tensors = checkpoint_.tensors();
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const auto& entry) { return matches(pattern, entry.first); });
  };
  if (!has("model.layers.*_proj.norm.weight") && !has("model.layers.*_proj.rms_norm.weight")) {
    return;
  }
  const auto add_norms = [](LayerConfig& layer) {
    if (layer.attention.sub_norm || layer.ffn.sub_norm) {
      fail(MOE_ERR_UNSUPPORTED,
           "config.json: the outputs of attention and FFN are normed twice, as the family does and "
           "by o_proj and down_proj, which no layer here computes");
    }
    if (layer.has_attention) layer.attention.in_norms = layer.attention.sub_norm = true;
    if (layer.has_ffn) layer.ffn.in_norms = layer.ffn.sub_norm = true;
  };
  for (LayerConfig& layer : layers()) add_norms(layer);
  if (guessing_) add_norms(*guessing_);
  names(kInNorms);
}

// The layer that guesses has names of its own.
void Decoder::locate_slots() {
  if (!guessing_) return locate_by(std::move(table_), checkpoint_, &out_);
  const int32_t n_layers = out_.config.n_layers();
  check(out_.config.layers.push(*guessing_));
  out_.config.n_predictions = 1;
  out_.config.raw_predictions = prediction_.raw;
  out_.predictions = std::move(prediction_.tensors);
  TensorTable guessing = table_;
  guessing.layers_under(prediction_.layer);
  guessing.add(prediction_.names);
  locate_by(std::move(guessing), checkpoint_, &out_);
  auto locate_guessing = std::move(out_.locate);
  locate_by(std::move(table_), checkpoint_, &out_);
  out_.locate = [n_layers, locate_guessing = std::move(locate_guessing),
                 locate = std::move(out_.locate)](const SlotGroup& group, const Slot& slot) {
    return group.layer >= n_layers ? locate_guessing(group, slot) : locate(group, slot);
  };
}

Imported Decoder::finish() {
  check_unread();
  read_in_norms();
  check_layers();
  keys.check_all_understood(
      [this](const std::string& key) { return place_in_gguf(checkpoint_, key); });
  names(stacked_moe_names());
  ignore_tensors("rope_freqs.weight");  // in GGUF files; already in the configuration
  check(out_.config.name.assign(checkpoint_.name()));  // config.json has no name
  out_.warnings = keys.warnings();
  read_companions(checkpoint_, &out_);
  locate_slots();
  return std::move(out_);
}

void read_generation_config(const Checkpoint& checkpoint, Imported* out) {
  const char* const generation = "generation_config.json";
  if (!checkpoint.has_document(generation)) return;
  const Json document = checkpoint.document(generation);
  const JsonNode node(document, generation);
  if (node.has("eos_token_id")) read_eos(node.at("eos_token_id"), &out->config);
}

void read_companions(const Checkpoint& checkpoint, Imported* out) {
  read_generation_config(checkpoint, out);
  if (checkpoint.has_document("tokenizer.json")) {
    out->tokenizer = TokenizerKind::kFile;
    out->tokenizer_file = "tokenizer.json";
    return;
  }
  if (checkpoint.has_document("tiktoken.model")) {
    fail(
        MOE_ERR_UNSUPPORTED,
        "%.200s: tiktoken.model without the tokenizer_class \"TikTokenTokenizer\" (Kimi's) in "
        "tokenizer_config.json: its pattern is not known. In Python, with the tiktoken.Encoding of "
        "the model: from transformers.integrations.tiktoken import convert_tiktoken_to_fast; "
        "convert_tiktoken_to_fast(ENCODING, FOLDER) writes tokenizer.json. Renamed, the file is "
        "left out",
        checkpoint.path().c_str());
  }
  for (const char* other : {"tokenizer.model", "vocab.json"}) {
    if (!checkpoint.has_document(other)) continue;
    fail(MOE_ERR_UNSUPPORTED,
         "%.150s: the tokenizer is there as %s only; tokenizer.json is read. In that folder run: "
         "python -c \"from transformers import AutoTokenizer as A; "
         "A.from_pretrained('.').save_pretrained('.')\"",
         checkpoint.path().c_str(), other);
  }
}

}  // namespace moe
