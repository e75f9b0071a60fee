// XLM-R (Conneau et al. 2020) and RoBERTa: encoders with the checkpoint's head.

#include "formats/import/failure.h"
#include "src/convert/arch/copies.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::roberta {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr const char* kPositions = "positions_and_type";  // derived here

constexpr TensorName kNames[] = {
    {"embedding.weight", "roberta.embeddings.word_embeddings.weight"},
    {"embedding.weight", "embeddings.word_embeddings.weight"},
    {"position_embedding.weight", kPositions},
    {"embedding_norm.weight", "roberta.embeddings.LayerNorm.weight"},
    {"embedding_norm.weight", "embeddings.LayerNorm.weight"},
    {"embedding_norm.bias", "roberta.embeddings.LayerNorm.bias"},
    {"embedding_norm.bias", "embeddings.LayerNorm.bias"},
    {"attention.q.weight", "attention.self.query.weight"},
    {"attention.q.bias", "attention.self.query.bias"},
    {"attention.k.weight", "attention.self.key.weight"},
    {"attention.k.bias", "attention.self.key.bias"},
    {"attention.v.weight", "attention.self.value.weight"},
    {"attention.v.bias", "attention.self.value.bias"},
    {"attention.o.weight", "attention.output.dense.weight"},
    {"attention.o.bias", "attention.output.dense.bias"},
    {"attention_post_norm.weight", "attention.output.LayerNorm.weight"},
    {"attention_post_norm.bias", "attention.output.LayerNorm.bias"},
    {"ffn.up.weight", "intermediate.dense.weight"},
    {"ffn.up.bias", "intermediate.dense.bias"},
    {"ffn.down.weight", "output.dense.weight"},
    {"ffn.down.bias", "output.dense.bias"},
    {"ffn_post_norm.weight", "output.LayerNorm.weight"},
    {"ffn_post_norm.bias", "output.LayerNorm.bias"}};

constexpr TensorName kTokenHead[] = {{"head.dense.weight", "lm_head.dense.weight"},
                                     {"head.dense.bias", "lm_head.dense.bias"},
                                     {"head.norm.weight", "lm_head.layer_norm.weight"},
                                     {"head.norm.bias", "lm_head.layer_norm.bias"},
                                     {"head.weight", "lm_head.decoder.weight"},
                                     {"head.bias", "lm_head.bias"},
                                     {"head.bias", "lm_head.decoder.bias"}};
// An untied head has both biases and adds the matrix's own.
constexpr TensorName kUntiedBias[] = {{"head.bias", "lm_head.decoder.bias"}};
constexpr TensorName kClassHead[] = {{"head.dense.weight", "classifier.dense.weight"},
                                     {"head.dense.bias", "classifier.dense.bias"},
                                     {"head.weight", "classifier.out_proj.weight"},
                                     {"head.bias", "classifier.out_proj.bias"}};
constexpr TensorName kTagHead[] = {{"head.weight", "classifier.weight"},
                                   {"head.bias", "classifier.bias"}};
constexpr TensorName kSpanHead[] = {{"head.weight", "qa_outputs.weight"},
                                    {"head.bias", "qa_outputs.bias"}};

/// A head of `transformers`: the suffix of the class name.
struct Task {
  const char* suffix;
  HeadConfig head;
  std::span<const TensorName> names;
};
const Task kTasks[] = {
    {"ForMaskedLM", {HeadKind::kTokens, 0, true, true, Activation::kGelu}, kTokenHead},
    {"ForSequenceClassification",
     {HeadKind::kClasses, 0, true, false, Activation::kTanh},
     kClassHead},
    {"ForTokenClassification", {.kind = HeadKind::kTags}, kTagHead},
    {"ForQuestionAnswering", {.kind = HeadKind::kSpan}, kSpanHead},
    {"Model", {.kind = HeadKind::kNone}, {}}};

const Task& read_task(ConfigKeys* keys) {
  std::string known;
  const JsonNode node = keys->node("architectures");
  for (const JsonNode& name : node.elements()) {
    for (const Task& task : kTasks) {
      if (name.string().ends_with(task.suffix)) return task;
    }
  }
  for (const Task& task : kTasks) known += std::string(known.empty() ? "" : ", ") + task.suffix;
  node.fail_expected("a class that ends in one of " + known);
}

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

// Position rows from the first token's on, each plus the row of the only text type.
DerivedTensor positions(const Checkpoint& checkpoint, const std::string& prefix, int32_t first,
                        ModelConfig* config) {
  const std::string name = prefix + "embeddings.position_embeddings.weight";
  const std::string types = prefix + "embeddings.token_type_embeddings.weight";
  const int32_t d = config->d_model, n = rows_of(checkpoint, name, d) - first;
  if (n < 1) fail(MOE_ERR_SHAPE, "tensor %s: expected more than %d rows", name.c_str(), first);
  config->context_length = n;
  const auto width = static_cast<size_t>(d);
  DerivedTensor out{kPositions, {n, d}, {}};
  out.values.resize(static_cast<size_t>(n) * width);
  checkpoint.read(*checkpoint.find(name), static_cast<uint64_t>(first) * width, out.values.size(),
                  out.values.data());
  (void)rows_of(checkpoint, types, d);
  std::vector<float> type(width);
  checkpoint.read(*checkpoint.find(types), 0, width, type.data());
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] += type[i % width];
  return out;
}

LayerConfig read_layer(ConfigKeys* keys, int32_t d_model) {
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.n_heads = a.n_kv_heads = keys->integer("num_attention_heads", 1, d_model);
  if (d_model % a.n_heads != 0) {
    fail(MOE_ERR_SHAPE, "config.json: num_attention_heads %d does not divide %d", a.n_heads,
         d_model);
  }
  a.head_dim = d_model / a.n_heads;
  a.causal = false;
  a.norms = {.pre = false, .out = false, .post = true};
  layer.ffn.norms = a.norms;
  layer.ffn.d_ff = keys->integer("intermediate_size", 1, kMaxWidth);
  layer.ffn.act.kind = keys->activation("hidden_act");
  return layer;
}

// The number of labels of a head without tokens: its matrix's rows.
int32_t count_labels(const Checkpoint& checkpoint, const Task& task, int32_t d) {
  for (const TensorName& name : task.names) {
    if (std::string_view(name.slot) == "head.weight") return rows_of(checkpoint, name.tensor, d);
  }
  return 0;
}

Imported import_roberta(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  Imported out;
  ModelConfig* c = &out.config;
  const Task& task = read_task(&keys);
  const std::string prefix =
      checkpoint.find("embeddings.word_embeddings.weight") != nullptr ? "" : "roberta.";
  c->vocab_size = keys.integer("vocab_size", 1, 1 << 24);
  c->d_model = keys.integer("hidden_size", 1, kMaxWidth);
  c->norm = NormKind::kLayer;
  c->norm_eps = keys.number("layer_norm_eps", 1e-12f);
  c->embedding_norm = true;
  c->final_norm = false;
  c->positions = PositionKind::kLearned;
  c->pad_token_id = keys.integer("pad_token_id", 1, 0, c->vocab_size - 1);
  keys.require("position_embedding_type", "absolute");
  keys.require("is_decoder", false);
  keys.require("is_encoder_decoder", false);
  keys.ignore({"max_position_embeddings", "type_vocab_size", "hidden_dropout_prob",
               "attention_probs_dropout_prob", "classifier_dropout", "bos_token_id", "eos_token_id",
               "num_labels", "output_past", "layerdrop", "cls_token_id", "mask_token_id",
               "summary_type"});
  const LayerConfig layer = read_layer(&keys, c->d_model);
  const int32_t n_layers = keys.integer("num_hidden_layers", 1, 1024);
  for (int32_t l = 0; l < n_layers; ++l) {
    check(c->layers.push(layer));
    out.cosine_widths.push_back(0);
  }
  c->head = task.head;
  c->tie_embeddings =
      task.head.kind == HeadKind::kTokens && keys.boolean("tie_word_embeddings", true);
  if (task.head.kind != HeadKind::kTokens) {
    c->head.n_labels = count_labels(checkpoint, task, c->d_model);
    keys.ignore({"tie_word_embeddings"});
  }
  out.derived.push_back(positions(checkpoint, prefix, c->pad_token_id + 1, c));
  keys.check_all_understood();
  check(c->name.assign(checkpoint.name()));
  read_companions(checkpoint, &out);
  TensorTable table(prefix + "encoder.layer.{l}.");
  table.add(kNames);
  const bool untied = task.head.kind == HeadKind::kTokens && !c->tie_embeddings;
  if (untied) table.add(kUntiedBias);
  if (c->tie_embeddings) {
    const char* const key = "tie_word_embeddings to false";
    check_copy(checkpoint, "lm_head.decoder.weight", prefix + "embeddings.word_embeddings.weight",
               key);
    check_copy(checkpoint, "lm_head.decoder.bias", "lm_head.bias", key);
  }
  table.add(task.names);
  out.ignored = {"*embeddings.position_ids", "*embeddings.position_embeddings.weight",
                 "*embeddings.token_type_embeddings.weight", "*pooler.dense.*",
                 untied ? "lm_head.bias" : "lm_head.decoder.*"};
  locate_by(std::move(table), checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"xlm-roberta", import_roberta},
                                       {"roberta", import_roberta}};
  return kRows;
}

}  // namespace moe::arch::roberta
