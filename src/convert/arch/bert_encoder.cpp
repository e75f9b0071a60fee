// SPDX-License-Identifier: MIT
// Reads the configuration of an encoder of this family, finds its head by the architecture's name,
// and lists where its tensors are.
#include "src/convert/arch/bert_encoder.h"

#include "formats/import/failure.h"
#include "src/convert/tokenizer/vocab_txt.h"

namespace moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
// Derived here: positions with the row of the first or the second text type.
constexpr const char* kPositions = "positions_and_type";
constexpr const char* kSecondPositions = "positions_and_second_type";

// A layer's names, after its prefix. Some published files still have TensorFlow's names of norms.
constexpr TensorName kLayerNames[] = {
    {"attention.q.weight", "attention.self.query.weight"},
    {"attention.q.bias", "attention.self.query.bias"},
    {"attention.k.weight", "attention.self.key.weight"},
    {"attention.k.bias", "attention.self.key.bias"},
    {"attention.v.weight", "attention.self.value.weight"},
    {"attention.v.bias", "attention.self.value.bias"},
    {"attention.o.weight", "attention.output.dense.weight"},
    {"attention.o.bias", "attention.output.dense.bias"},
    {"attention_post_norm.weight", "attention.output.LayerNorm.weight"},
    {"attention_post_norm.weight", "attention.output.LayerNorm.gamma"},
    {"attention_post_norm.bias", "attention.output.LayerNorm.bias"},
    {"attention_post_norm.bias", "attention.output.LayerNorm.beta"},
    {"ffn.up.weight", "intermediate.dense.weight"},
    {"ffn.up.bias", "intermediate.dense.bias"},
    {"ffn.down.weight", "output.dense.weight"},
    {"ffn.down.bias", "output.dense.bias"},
    {"ffn_post_norm.weight", "output.LayerNorm.weight"},
    {"ffn_post_norm.weight", "output.LayerNorm.gamma"},
    {"ffn_post_norm.bias", "output.LayerNorm.bias"},
    {"ffn_post_norm.bias", "output.LayerNorm.beta"},
    {"position_embedding.weight", kPositions},
    {"second_position_embedding.weight", kSecondPositions}};

// The names in a checkpoint without a head; one with a head puts its prefix in front of them.
constexpr TensorName kBareNames[] = {{"embedding.weight", "embeddings.word_embeddings.weight"},
                                     {"embedding_norm.weight", "embeddings.LayerNorm.weight"},
                                     {"embedding_norm.weight", "embeddings.LayerNorm.gamma"},
                                     {"embedding_norm.bias", "embeddings.LayerNorm.bias"},
                                     {"embedding_norm.bias", "embeddings.LayerNorm.beta"}};

// The rows of a matrix in the model, whose tensor must be (rows, d).
int32_t rows_of(const Checkpoint& checkpoint, const std::string& name, int32_t d) {
  const SourceTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
  const auto& shape = tensor->shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[0] > kMaxWidth || shape[1] != d) {
    fail(MOE_ERR_SHAPE, "tensor %s: expected (n, %d), file has %s", name.c_str(), d,
         shape_text(shape).c_str());
  }
  return static_cast<int32_t>(shape[0]);
}

}  // namespace

void ignore_score_keys(ConfigKeys* keys) {
  keys->ignore({"sentence_transformers", "sbert_ce_default_activation_function"});
}

const EncoderTask& read_encoder_task(ConfigKeys* keys, std::span<const EncoderTask> tasks) {
  std::string known;
  const JsonNode node = keys->node("architectures");
  for (const JsonNode& name : node.elements()) {
    for (const EncoderTask& task : tasks) {
      if (name.string().ends_with(task.suffix)) return task;
    }
  }
  for (const EncoderTask& task : tasks) {
    known += std::string(known.empty() ? "" : ", ") + task.suffix;
  }
  node.fail_expected("a class that ends in one of " + known);
}

void set_encoder_head(const Checkpoint& checkpoint, const EncoderTask& task, ConfigKeys* keys,
                      ModelConfig* config) {
  config->head = task.head;
  const bool tokens = task.head.kind == HeadKind::kTokens;
  config->tie_embeddings = tokens && keys->boolean("tie_word_embeddings", true);
  if (tokens) return;
  keys->ignore({"tie_word_embeddings"});
  for (const TensorName& name : task.names) {
    if (std::string_view(name.slot) != "head.weight") continue;
    config->head.n_labels = rows_of(checkpoint, name.tensor, config->d_model);
  }
}

void finish_encoder(TensorTable table, const Checkpoint& checkpoint, Imported* out) {
  check(out->config.name.assign(checkpoint.name()));
  if (has_only_vocab_txt(checkpoint)) {
    out->tokenizer = TokenizerKind::kFile;
    out->tokenizer_file = kVocabTxt;
  } else {
    read_companions(checkpoint, out);
  }
  locate_by(std::move(table), checkpoint, out);
}

BertEncoder::BertEncoder(const Checkpoint& checkpoint, const char* prefix, ConfigKeys* keys,
                         Imported* out)
    : checkpoint_(checkpoint),
      prefix_(checkpoint.find("embeddings.word_embeddings.weight") != nullptr ? "" : prefix),
      keys_(keys),
      out_(out) {
  ModelConfig* c = &out->config;
  c->vocab_size = keys->integer("vocab_size", 1, 1 << 24);
  c->d_model = keys->integer("hidden_size", 1, kMaxWidth);
  c->norm = NormKind::kLayer;
  c->norm_eps = keys->eps("layer_norm_eps", 1e-12f);
  c->embedding_norm = true;
  c->final_norm = false;
  c->positions = PositionKind::kLearned;
  keys->require("position_embedding_type", "absolute");
  keys->require("is_decoder", false);
  keys->require("is_encoder_decoder", false);
  keys->ignore({"max_position_embeddings", "type_vocab_size", "hidden_dropout_prob",
                "attention_probs_dropout_prob", "classifier_dropout", "bos_token_id",
                "eos_token_id", "num_labels", "output_past", "layerdrop", "cls_token_id",
                "mask_token_id", "summary_type"});
  ignore_score_keys(keys);
  read_layers();
}

void BertEncoder::read_layers() {
  const int32_t d_model = out_->config.d_model;
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.n_heads = a.n_kv_heads = keys_->integer("num_attention_heads", 1, d_model);
  keys_->check_divides("num_attention_heads", a.n_heads, "hidden_size", d_model);
  a.head_dim = d_model / a.n_heads;
  a.causal = false;
  a.norms = {.pre = false, .out = false, .post = true};
  layer.ffn.norms = a.norms;
  layer.ffn.d_ff = keys_->integer("intermediate_size", 1, kMaxWidth);
  layer.ffn.act.kind = keys_->activation("hidden_act");
  const int32_t n_layers = keys_->integer("num_hidden_layers", 1, 1024);
  for (int32_t l = 0; l < n_layers; ++l) {
    check(out_->config.layers.push(layer));
    out_->cosine_widths.push_back(0);
  }
}

void BertEncoder::read_positions(int32_t first_position, bool pairs) {
  const std::string name = prefix_ + "embeddings.position_embeddings.weight";
  const std::string types = prefix_ + "embeddings.token_type_embeddings.weight";
  const int32_t d = out_->config.d_model, n = rows_of(checkpoint_, name, d) - first_position;
  if (n < 1) {
    fail(MOE_ERR_SHAPE, "tensor %s: expected more than %d rows", name.c_str(), first_position);
  }
  out_->config.context_length = n;
  const auto width = static_cast<size_t>(d);
  DerivedTensor derived{kPositions, {n, d}, {}};
  derived.values.resize(static_cast<size_t>(n) * width);
  checkpoint_.read(*checkpoint_.find(name), static_cast<uint64_t>(first_position) * width,
                   derived.values.size(), derived.values.data());
  const int32_t n_types = rows_of(checkpoint_, types, d);
  const auto add_type = [&](DerivedTensor to, uint64_t row) {
    std::vector<float> type(width);
    checkpoint_.read(*checkpoint_.find(types), row * width, width, type.data());
    for (size_t i = 0; i < to.values.size(); ++i) to.values[i] += type[i % width];
    out_->derived.push_back(std::move(to));
  };
  if (pairs && n_types > 1) {
    out_->config.second_positions = true;
    add_type({kSecondPositions, derived.shape, derived.values}, 1);
  }
  add_type(std::move(derived), 0);
}

TensorTable BertEncoder::table() const {
  TensorTable table(prefix_ + "encoder.layer.{l}.");
  table.add(kLayerNames);
  table.add(kBareNames);
  return table;
}

void BertEncoder::finish(TensorTable table) {
  keys_->check_all_understood();
  for (const char* name : {"*embeddings.position_ids", "*embeddings.position_embeddings.weight",
                           "*embeddings.token_type_embeddings.weight", "*pooler.dense.*"}) {
    out_->ignored.push_back(name);
  }
  finish_encoder(std::move(table), checkpoint_, out_);
}

}  // namespace moe
