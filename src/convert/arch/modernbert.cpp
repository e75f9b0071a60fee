// SPDX-License-Identifier: MIT
// ModernBERT (Warner et al. 2024, arXiv:2412.13663) with the checkpoint's head: norms before each
// block, gated FFNs, rotary positions, and attention that sees the whole text in every third layer
// only. Texts are never padded here.

#include "formats/import/failure.h"
#include "src/convert/arch/bert_encoder.h"
#include "src/convert/arch/copies.h"

namespace moe::arch::modernbert {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

constexpr Place part_of(int32_t parts, int32_t part) { return {.parts = parts, .part = part}; }

constexpr TensorName kNames[] = {{"embedding.weight", "model.embeddings.tok_embeddings.weight"},
                                 {"embedding.weight", "embeddings.tok_embeddings.weight"},
                                 {"embedding_norm.weight", "model.embeddings.norm.weight"},
                                 {"embedding_norm.weight", "embeddings.norm.weight"},
                                 {"final_norm.weight", "model.final_norm.weight"},
                                 {"final_norm.weight", "final_norm.weight"},
                                 {"attention_norm.weight", "attn_norm.weight"},
                                 {"attention.q.weight", "attn.Wqkv.weight", part_of(3, 0)},
                                 {"attention.k.weight", "attn.Wqkv.weight", part_of(3, 1)},
                                 {"attention.v.weight", "attn.Wqkv.weight", part_of(3, 2)},
                                 {"attention.o.weight", "attn.Wo.weight"},
                                 {"ffn_norm.weight", "mlp_norm.weight"},
                                 {"ffn.gate.weight", "mlp.Wi.weight", part_of(2, 0)},
                                 {"ffn.up.weight", "mlp.Wi.weight", part_of(2, 1)},
                                 {"ffn.down.weight", "mlp.Wo.weight"}};
constexpr TensorName kNormBias[] = {{"embedding_norm.bias", "model.embeddings.norm.bias"},
                                    {"embedding_norm.bias", "embeddings.norm.bias"},
                                    {"final_norm.bias", "model.final_norm.bias"},
                                    {"final_norm.bias", "final_norm.bias"},
                                    {"attention_norm.bias", "attn_norm.bias"},
                                    {"ffn_norm.bias", "mlp_norm.bias"},
                                    {"head.norm.bias", "head.norm.bias"}};
constexpr TensorName kAttentionBias[] = {{"attention.q.bias", "attn.Wqkv.bias", part_of(3, 0)},
                                         {"attention.k.bias", "attn.Wqkv.bias", part_of(3, 1)},
                                         {"attention.v.bias", "attn.Wqkv.bias", part_of(3, 2)},
                                         {"attention.o.bias", "attn.Wo.bias"}};
constexpr TensorName kFfnBias[] = {{"ffn.gate.bias", "mlp.Wi.bias", part_of(2, 0)},
                                   {"ffn.up.bias", "mlp.Wi.bias", part_of(2, 1)},
                                   {"ffn.down.bias", "mlp.Wo.bias"}};

constexpr TensorName kHeadDense[] = {{"head.dense.weight", "head.dense.weight"},
                                     {"head.norm.weight", "head.norm.weight"}};
constexpr TensorName kHeadDenseBias[] = {{"head.dense.bias", "head.dense.bias"}};
constexpr TensorName kTokenHead[] = {{"head.weight", "decoder.weight"}};
constexpr TensorName kTokenBias[] = {{"head.bias", "decoder.bias"}};
constexpr TensorName kLabelHead[] = {{"head.weight", "classifier.weight"},
                                     {"head.bias", "classifier.bias"}};

constexpr HeadConfig head_of(HeadKind kind) { return {.kind = kind, .dense = true, .norm = true}; }
constexpr EncoderTask kTasks[] = {
    {"ForMaskedLM", head_of(HeadKind::kTokens), kTokenHead},
    {"ForSequenceClassification", head_of(HeadKind::kClasses), kLabelHead},
    {"ForTokenClassification", head_of(HeadKind::kTags), kLabelHead},
    {"ForQuestionAnswering", head_of(HeadKind::kSpan), kLabelHead},
    {"Model", {.kind = HeadKind::kNone}, {}}};

// The base of the rotary positions of one kind of layer.
float read_theta(ConfigKeys* keys, const char* layers, const char* key, float fallback) {
  const float theta = keys->positive(key, fallback);
  if (!keys->has("rope_parameters")) return theta;
  const JsonNode all = keys->node("rope_parameters");
  if (!all.has(layers)) return theta;
  const JsonNode rope = all.at(layers);
  keys->unknown_members(rope, {"rope_theta", "rope_type"});
  (void)rope.choice("rope_type", 0, {"default"});
  if (!rope.has("rope_theta")) return theta;
  if (keys->has(key)) check_same(keys->node(key), rope.at("rope_theta"));
  return positive_of(rope.at("rope_theta"));
}

// The layers whose attention sees only their neighbours.
std::vector<bool> local_layers(ConfigKeys* keys, int32_t n_layers) {
  std::vector<bool> local(static_cast<size_t>(n_layers));
  const int32_t every = keys->integer("global_attn_every_n_layers", 3, 1, 1 << 16);
  for (int32_t l = 0; l < n_layers; ++l) local[static_cast<size_t>(l)] = l % every != 0;
  const std::vector<JsonNode> types = keys->list("layer_types", local.size());
  for (size_t l = 0; l < types.size(); ++l) {
    local[l] = types[l].choice({"full_attention", "sliding_attention"}) == 1;
  }
  return local;
}

LayerConfig read_layer(ConfigKeys* keys, int32_t d_model) {
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.n_heads = a.n_kv_heads = keys->integer("num_attention_heads", 1, d_model);
  keys->check_divides("num_attention_heads", a.n_heads, "hidden_size", d_model);
  a.head_dim = d_model / a.n_heads;
  a.causal = false;
  a.rope.kind = RopeKind::kHalf;
  a.rope.dims = a.head_dim;
  layer.ffn.d_ff = keys->integer("intermediate_size", 1, kMaxWidth);
  layer.ffn.gated = true;
  layer.ffn.act.kind =
      keys->has("hidden_activation") ? keys->activation("hidden_activation") : Activation::kGelu;
  return layer;
}

void read_layers(ConfigKeys* keys, Imported* out) {
  ModelConfig& c = out->config;
  const LayerConfig common = read_layer(keys, c.d_model);
  const int32_t n_layers = keys->integer("num_hidden_layers", 1, 1024);
  // As many tokens on each side as half of the key says.
  const int32_t side = keys->integer("local_attention", 128, 2, 1 << 23) / 2;
  const float global = read_theta(keys, "full_attention", "global_rope_theta", 160000);
  const float local = read_theta(keys, "sliding_attention", "local_rope_theta", 10000);
  for (const bool is_local : local_layers(keys, n_layers)) {
    LayerConfig layer = common;
    layer.attention.norms.pre = !c.layers.empty();  // the embedding's norm is the first layer's
    layer.attention.window = is_local ? 2 * side + 1 : 0;
    layer.attention.rope.theta = is_local ? local : global;
    check(c.layers.push(layer));
    out->cosine_widths.push_back(0);
  }
}

void add_head(const Checkpoint& checkpoint, const EncoderTask& task, ConfigKeys* keys,
              TensorTable* table, ModelConfig* c) {
  set_encoder_head(checkpoint, task, keys, c);
  const bool dense_bias = keys->boolean("classifier_bias", false);
  const bool token_bias = keys->boolean("decoder_bias", true);
  if (keys->has("classifier_activation")) {
    c->head.act = keys->activation("classifier_activation");
  }
  const bool classes = task.head.kind == HeadKind::kClasses;
  if (classes && keys->has("classifier_pooling")) {
    const bool mean = keys->node("classifier_pooling").choice({"cls", "mean"}) == 1;
    c->head.pooling = mean ? Pooling::kMean : Pooling::kFirst;
  }
  if (task.head.kind == HeadKind::kNone) return;
  table->add(kHeadDense);
  if (dense_bias) table->add(kHeadDenseBias);
  table->add(task.names);
  if (task.head.kind == HeadKind::kTokens && token_bias) table->add(kTokenBias);
}

Imported import_modernbert(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  Imported out;
  ModelConfig* c = &out.config;
  const EncoderTask& task = read_encoder_task(&keys, kTasks);
  const bool bare = checkpoint.find("embeddings.tok_embeddings.weight") != nullptr;
  TensorTable table(bare ? "layers.{l}." : "model.layers.{l}.");
  table.add(kNames);
  c->vocab_size = keys.integer("vocab_size", 1, 1 << 24);
  c->d_model = keys.integer("hidden_size", 1, kMaxWidth);
  c->context_length = keys.integer("max_position_embeddings", 8192, 1, 1 << 24);
  c->norm = NormKind::kLayer;
  c->norm_eps = keys.eps("norm_eps", 1e-5f);
  c->embedding_norm = true;
  c->pad_token_id = keys.integer("pad_token_id", -1, 0, c->vocab_size - 1);
  read_layers(&keys, &out);
  add_head(checkpoint, task, &keys, &table, c);
  if (keys.boolean("norm_bias", false)) table.add(kNormBias);
  if (keys.boolean("attention_bias", false)) table.add(kAttentionBias);
  if (keys.boolean("mlp_bias", false)) table.add(kFfnBias);
  if (c->tie_embeddings) {
    check_copy(checkpoint, "decoder.weight",
               bare ? "embeddings.tok_embeddings.weight" : "model.embeddings.tok_embeddings.weight",
               "tie_word_embeddings to false");
  }
  keys.ignore({"bos_token_id", "cls_token_id", "classifier_dropout", "classifier_pooling",
               "deterministic_flash_attn", "embedding_dropout", "eos_token_id",
               "initializer_cutoff_factor", "layer_norm_eps", "mlp_dropout", "num_labels",
               "position_embedding_type", "reference_compile", "repad_logits_with_grad",
               "sparse_pred_ignore_index", "sparse_prediction", "mask_token_id"});
  ignore_score_keys(&keys);
  keys.check_all_understood();
  check(c->name.assign(checkpoint.name()));
  read_companions(checkpoint, &out);
  out.ignored = {"decoder.*"};
  if (task.head.kind == HeadKind::kNone) out.ignored.push_back("head.*");
  locate_by(std::move(table), checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"modernbert", import_modernbert}};
  return kRows;
}

}  // namespace moe::arch::modernbert
