// SPDX-License-Identifier: MIT
// XMoE (Yang et al. 2024), from its Megatron-DeepSpeed and fairseq trees: every n-th layer has
// small experts with a threshold, top-k, BASE or hash router. config.json contains the arguments of
// the training run. Those that affect the computation are read or must have the supported value;
// the hundreds about data and optimiser are ignored. Not imported: the capacity at evaluation (set
// it at run time) and the random choice of further experts.

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/fairseq.h"

namespace moe::arch::xmoe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxContext = 1 << 20;

constexpr TensorName kMegatron[] = {
    {"embedding.weight", "language_model.embedding.word_embeddings.weight"},
    {"position_embedding.weight", "language_model.embedding.position_embeddings.weight"},
    {"final_norm.weight", "language_model.encoder.final_layernorm.weight"},
    {"final_norm.bias", "language_model.encoder.final_layernorm.bias"},
    {"head.weight", "language_model.output_layer.weight"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"attention_norm.bias", "input_layernorm.bias"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.bias", "post_attention_layernorm.bias"},
    {"attention.q.weight", "self_attention.query_key_value.weight"},
    {"attention.k.weight", "self_attention.query_key_value.weight"},
    {"attention.v.weight", "self_attention.query_key_value.weight"},
    {"attention.o.weight", "self_attention.dense.weight"},
    {"ffn.up.weight", "mlp.dense_h_to_4h.weight"},
    {"ffn.down.weight", "mlp.dense_4h_to_h.weight"},
    {"moe.router.weight", "mlp.gate.wg.weight"},
    {"moe.router.table", "mlp.gate.hash_bin_map"},
    {"moe.experts.up.weight", "mlp.experts.yyh_local_experts.{e}.dense_h_to_4h.weight"},
    {"moe.experts.down.weight", "mlp.experts.yyh_local_experts.{e}.dense_4h_to_h.weight"}};

constexpr TensorName kMegatronBias[] = {
    {"attention.q.bias", "self_attention.query_key_value.bias"},
    {"attention.k.bias", "self_attention.query_key_value.bias"},
    {"attention.v.bias", "self_attention.query_key_value.bias"},
    {"attention.o.bias", "self_attention.dense.bias"},
    {"ffn.up.bias", "mlp.dense_h_to_4h.bias"},
    {"ffn.down.bias", "mlp.dense_4h_to_h.bias"},
    {"moe.experts.up.bias", "mlp.experts.yyh_local_experts.{e}.dense_h_to_4h.bias"}};

constexpr TensorName kFairseq[] = {
    {"ffn.up.weight", "fc1.weight"},
    {"ffn.up.bias", "fc1.bias"},
    {"ffn.down.weight", "fc2.weight"},
    {"ffn.down.bias", "fc2.bias"},
    {"moe.router.weight", "gate.wg.weight"},
    {"moe.experts.up.weight", "experts.yyh_local_experts.{e}.fc1.weight"},
    {"moe.experts.up.bias", "experts.yyh_local_experts.{e}.fc1.bias"},
    {"moe.experts.down.weight", "experts.yyh_local_experts.{e}.fc2.weight"},
    {"moe.experts.down.bias", "experts.yyh_local_experts.{e}.fc2.bias"}};

enum Selection { kBase, kTopk, kThreshold, kHash };

RouterConfig read_router(ConfigKeys* keys, Selection routing, const char* k_key,
                         int32_t n_experts) {
  RouterConfig r;
  const RouterKind kinds[] = {RouterKind::kBase, RouterKind::kSoftmax, RouterKind::kThreshold,
                              RouterKind::kHash};
  r.kind = kinds[routing];
  r.weights = RouterWeights::kRaw;
  if (routing == kTopk) r.k = keys->integer(k_key, 1, n_experts);
  if (routing == kThreshold) r.threshold = keys->number("threshold");
  return r;
}

bool has_experts(int32_t layer, int32_t interval) {
  return interval > 0 && (layer + 1) % interval == 0;
}

// --- Megatron-DeepSpeed

void refuse_megatron_variants(ConfigKeys* keys) {
  for (const char* key :
       {"apply_residual_connection_post_layernorm", "apply_layernorm_1p", "swiglu",
        "retro_add_retriever", "scale_moe", "placeholder_expert", "num_experts_switch"}) {
    keys->require(key, false);
  }
  for (const char* key : {"gate_view_num", "num_ffn_heads", "tensor_model_parallel_size",
                          "pipeline_model_parallel_size"}) {
    keys->require(key, 1);
  }
  keys->require("normalization", "layernorm");
  keys->require("mlp_type", "standard");
}

Activation megatron_activation(ConfigKeys* keys) {
  if (keys->boolean("yyh_relu", false)) return Activation::kRelu;
  if (keys->boolean("openai_gelu", false)) return Activation::kGeluTanh;
  if (keys->boolean("onnx_safe", false)) return Activation::kGelu;
  if (keys->boolean("squared_relu", false)) return Activation::kRelu2;
  return keys->boolean("bias_gelu_fusion", true) ? Activation::kGeluTanh : Activation::kGelu;
}

Selection megatron_routing(ConfigKeys* keys) {
  const struct {
    const char* key;
    Selection routing;
  } choices[] = {{"use_base_layer", kBase},
                 {"use_topk", kTopk},
                 {"use_threshold", kThreshold},
                 {"use_hash_layer", kHash}};
  int n = 0;
  Selection found = kThreshold;
  for (const auto& choice : choices) {
    if (!keys->boolean(choice.key, false)) continue;
    found = choice.routing;
    ++n;
  }
  if (n != 1) {
    fail(MOE_ERR_FORMAT,
         "config.json: expected one of use_base_layer, use_topk, use_threshold and use_hash_layer "
         "to be true, found %d",
         n);
  }
  return found;
}

// A number, or a list of one for all layers.
int32_t count_experts(ConfigKeys* keys) {
  const JsonNode node = keys->node("num_experts");
  if (!node.value().is_array()) return keys->integer("num_experts", 1, 1 << 16);
  int64_t n = 0;
  for (const JsonNode& x : node.elements()) {
    if (n != 0 && x.integer(1, 1 << 16) != n) fail_value(node, "only equal numbers are");
    n = x.integer(1, 1 << 16);
  }
  if (n == 0) node.fail_expected("at least one number");
  return static_cast<int32_t>(n);
}

FfnConfig megatron_experts(ConfigKeys* keys, int32_t n_experts, FfnConfig ffn) {
  ffn.kind = FfnKind::kMoe;
  ffn.d_ff = keys->integer_or_derived("moe_ffn_hidden_size", ffn.d_ff, 1, kMaxWidth);
  ffn.moe.n_experts = n_experts;
  ffn.moe.router = read_router(keys, megatron_routing(keys), "topk", n_experts);
  return ffn;
}

void read_megatron_positions(ConfigKeys* keys, ModelConfig* c, AttentionConfig* a) {
  c->positions = PositionKind::kNone;
  if (keys->boolean("add_position_embedding", true)) c->positions = PositionKind::kLearned;
  if (!keys->boolean("use_rotary_position_embeddings", false)) return;
  if (c->positions == PositionKind::kLearned) {
    fail_value(keys->node("use_rotary_position_embeddings"),
               "without add_position_embedding it is");
  }
  c->positions = PositionKind::kRope;
  a->rope.kind = RopeKind::kHalf;
  a->rope.theta = 10000;
  const float percent = keys->number("rotary_percent", 1);
  if (!(percent > 0 && percent <= 1)) {
    keys->node("rotary_percent").fail_expected("a number above 0 and at most 1");
  }
  a->rope.dims = static_cast<int32_t>(static_cast<float>(a->head_dim) * percent);
}

// Heads are consecutive, each with its q, k and v.
void split_query_key_value(int32_t head_dim, Imported* out) {
  auto locate = std::move(out->locate);
  out->locate = [locate, head_dim](const SlotGroup& group, const Slot& slot) {
    Source s = locate(group, slot);
    const Role weights[] = {Role::kQ, Role::kK, Role::kV};
    const Role biases[] = {Role::kQBias, Role::kKBias, Role::kVBias};
    for (int32_t i = 0; i < 3; ++i) {
      if (group.part != Part::kAttention || s.tensor.empty()) continue;
      if (slot.role != weights[i] && slot.role != biases[i]) continue;
      s.shape = {int64_t{3} * slot.rows};
      if (slot.role == weights[i]) s.shape.push_back(slot.cols);
      s.row_groups = {{{head_dim, int64_t{i} * head_dim * slot.cols}},
                      int64_t{3} * head_dim * slot.cols};
    }
    return s;
  };
}

// --- fairseq

void refuse_fairseq_variants(ConfigKeys* keys) {
  for (const char* key : {"scale_attn", "scale_fc", "scale_heads", "scale_resids", "adaptive_input",
                          "cross_self_attention", "no_cross_attention", "no_decoder_final_norm"}) {
    keys->require(key, false);
  }
  keys->require("base_layers", 0);
}

int32_t rows_of_embedding(const Checkpoint& checkpoint) {
  const std::string name = kFairseqDecoder.tensor("embed_tokens.weight");
  const SourceTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
  if (tensor->shape.size() == 2 && tensor->shape[0] >= 1 && tensor->shape[0] <= 1 << 24) {
    return static_cast<int32_t>(tensor->shape[0]);
  }
  fail(MOE_ERR_SHAPE, "tensor %s: expected a matrix, file has %s", name.c_str(),
       shape_text(tensor->shape).c_str());
}

FairseqPositions fairseq_positions(ConfigKeys* keys, const FairseqSide& side) {
  if (keys->boolean("no_token_positional_embeddings", false)) return FairseqPositions::kNone;
  const bool learned = keys->boolean(side.key("learned_pos").c_str(), false);
  return learned ? FairseqPositions::kLearned : FairseqPositions::kSinusoids;
}

Imported import_xmoe_megatron(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  refuse_megatron_variants(&keys);
  Imported out;
  ModelConfig* c = &out.config;
  c->vocab_size = keys.integer("padded_vocab_size", 1, 1 << 24);
  c->d_model = keys.integer("hidden_size", 1, kMaxWidth);
  c->context_length = keys.integer("max_position_embeddings", 1, kMaxContext);
  c->norm = NormKind::kLayer;
  c->norm_eps = keys.eps("layernorm_epsilon", 1e-5f);
  c->tie_embeddings = !keys.boolean("untie_embeddings_and_output_weights", false);
  LayerConfig dense;
  AttentionConfig& a = dense.attention;
  a.n_heads = a.n_kv_heads = keys.integer("num_attention_heads", 1, kMaxWidth);
  keys.check_divides("num_attention_heads", a.n_heads, "hidden_size", c->d_model);
  a.head_dim = c->d_model / a.n_heads;
  keys.require("num_key_value_heads", a.n_heads);
  keys.require("kv_channels", a.head_dim);
  read_megatron_positions(&keys, c, &a);
  dense.ffn.d_ff = keys.integer("ffn_hidden_size", 4 * c->d_model, 1, kMaxWidth);
  dense.ffn.act.kind = megatron_activation(&keys);
  const int32_t n_experts = count_experts(&keys);
  const int32_t interval = n_experts > 1 ? keys.integer("expert_interval", 2, 1, 1 << 16) : 0;
  const FfnConfig moe = n_experts > 1 ? megatron_experts(&keys, n_experts, dense.ffn) : FfnConfig{};
  const int32_t n_layers = keys.integer("num_layers", 1, kMaxLayers);
  for (int32_t l = 0; l < n_layers; ++l) {
    LayerConfig layer = dense;
    if (has_experts(l, interval)) layer.ffn = moe;
    check(c->layers.push(layer));
  }
  check(c->name.assign(checkpoint.name()));
  read_companions(checkpoint, &out);
  TensorTable table("language_model.encoder.layers.{l}.");
  table.add(kMegatron);
  if (keys.boolean("add_bias_linear", true)) table.add(kMegatronBias);
  locate_by(std::move(table), checkpoint, &out);
  split_query_key_value(a.head_dim, &out);
  // Megatron returns an expert's last bias separately, and nothing adds it.
  out.ignored = {"*.yyh_local_experts.*.dense_4h_to_h.bias", "*.rotary_pos_emb.inv_freq"};
  return out;
}

int32_t fairseq_width(ConfigKeys* keys, const FairseqModel& model) {
  const int32_t d = keys->integer("decoder_embed_dim", 512, 2, kMaxWidth);
  if (model.both()) keys->require("encoder_embed_dim", d);
  for (const char* key : {"decoder_input_dim", "decoder_output_dim"}) keys->require(key, d);
  return d;
}

// A side's experts are parts of its FFN.
FfnConfig fairseq_experts(ConfigKeys* keys, FfnConfig ffn) {
  ffn.kind = FfnKind::kMoe;
  ffn.d_ff /= keys->integer("ffn_split_ratio", 1, 1, ffn.d_ff);
  ffn.moe.n_experts = keys->integer("num_experts", 1, 1 << 16);
  const Selection routing =
      keys->has("moe_type")
          ? static_cast<Selection>(keys->node("moe_type").choice({"base", "topk", "threshold"}))
          : kThreshold;
  ffn.moe.router = read_router(keys, routing, "moe_k", ffn.moe.n_experts);
  return ffn;
}

void read_fairseq_side(ConfigKeys* keys, const FairseqModel& model, const FairseqSide& side,
                       Imported* out) {
  LayerConfig dense;
  dense.attention = model.attention(keys, side, out->config.d_model);
  // fairseq's default is post-norm; the decoder-only models read so far are pre-norm.
  const bool in_front = keys->boolean(side.key("normalize_before").c_str(), !model.both());
  (model.both() && !side.causal ? out->config.encoder_norm : out->config.final_norm) = in_front;
  model.place_norms(in_front, &dense);
  dense.ffn.d_ff = keys->integer(side.key("ffn_embed_dim").c_str(), 2048, 1, kMaxWidth);
  dense.ffn.act.kind =
      keys->has("activation_fn") ? keys->activation("activation_fn") : Activation::kRelu;
  const bool without = keys->boolean(side.causal ? "no_decoder_moe" : "no_encoder_moe", false);
  const int32_t interval = without ? 0 : keys->integer("expert_interval", 0, 0, 1 << 16);
  const FfnConfig moe = interval > 0 ? fairseq_experts(keys, dense.ffn) : FfnConfig{};
  const int32_t n_layers = keys->integer(side.key("layers").c_str(), 6, 1, 1024);
  for (int32_t l = 0; l < n_layers; ++l) {
    LayerConfig layer = dense;
    if (has_experts(l, interval)) layer.ffn = moe;
    model.push(side, layer, out);
  }
  model.read_positions(keys, side, fairseq_positions(keys, side), out);
}

Imported import_xmoe_fairseq(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  const FairseqModel model(checkpoint);
  refuse_fairseq_variants(&keys);
  Imported out;
  ModelConfig* c = &out.config;
  c->vocab_size = rows_of_embedding(checkpoint);
  c->d_model = fairseq_width(&keys, model);
  c->norm = NormKind::kLayer;
  c->tie_embeddings = keys.boolean("share_decoder_input_output_embed", false);
  if (model.both()) model.share_embeddings(&keys, c);
  c->embedding_norm = keys.boolean("layernorm_embedding", false);
  if (!keys.boolean("no_scale_embedding", false)) {
    c->embedding_multiplier = std::sqrt(static_cast<float>(c->d_model));
  }
  for (const FairseqSide& side : model.sides()) read_fairseq_side(&keys, model, side, &out);
  check(c->name.assign(checkpoint.name()));
  read_companions(checkpoint, &out);
  model.locate(kFairseq, &out);
  for (const char* name : {"*.version", "*.embed_positions._float_tensor"}) {
    out.ignored.push_back(name);
  }
  model.leave_out_copies(&out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"xmoe_megatron", import_xmoe_megatron},
                                       {"xmoe_fairseq", import_xmoe_fairseq}};
  return kRows;
}

}  // namespace moe::arch::xmoe
