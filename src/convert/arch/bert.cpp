// SPDX-License-Identifier: MIT
// BERT (Devlin et al. 2018) with the checkpoint's head: also MiniLM, BGE, E5, GTE and others of its
// kind. Its second text type, which marks the second of two texts, is stored where the head reads
// pairs.

#include "src/convert/arch/bert_encoder.h"
#include "src/convert/arch/copies.h"

namespace moe::arch::bert {
namespace {

constexpr TensorName kNames[] = {{"embedding.weight", "bert.embeddings.word_embeddings.weight"},
                                 {"embedding_norm.weight", "bert.embeddings.LayerNorm.weight"},
                                 {"embedding_norm.weight", "bert.embeddings.LayerNorm.gamma"},
                                 {"embedding_norm.bias", "bert.embeddings.LayerNorm.bias"},
                                 {"embedding_norm.bias", "bert.embeddings.LayerNorm.beta"}};

constexpr TensorName kTokenHead[] = {
    {"head.dense.weight", "cls.predictions.transform.dense.weight"},
    {"head.dense.bias", "cls.predictions.transform.dense.bias"},
    {"head.norm.weight", "cls.predictions.transform.LayerNorm.weight"},
    {"head.norm.weight", "cls.predictions.transform.LayerNorm.gamma"},
    {"head.norm.bias", "cls.predictions.transform.LayerNorm.bias"},
    {"head.norm.bias", "cls.predictions.transform.LayerNorm.beta"},
    {"head.weight", "cls.predictions.decoder.weight"},
    {"head.bias", "cls.predictions.bias"},
    {"head.bias", "cls.predictions.decoder.bias"}};
// An untied head has both biases and adds the matrix's own.
constexpr TensorName kUntiedBias[] = {{"head.bias", "cls.predictions.decoder.bias"}};
// The pooler, a dense layer over the first token, belongs to the head.
constexpr TensorName kClassHead[] = {{"head.dense.weight", "bert.pooler.dense.weight"},
                                     {"head.dense.bias", "bert.pooler.dense.bias"},
                                     {"head.weight", "classifier.weight"},
                                     {"head.bias", "classifier.bias"}};
constexpr TensorName kTagHead[] = {{"head.weight", "classifier.weight"},
                                   {"head.bias", "classifier.bias"}};
constexpr TensorName kSpanHead[] = {{"head.weight", "qa_outputs.weight"},
                                    {"head.bias", "qa_outputs.bias"}};

// The activation of a token head is the layers'.
constexpr HeadConfig kTokens = {.kind = HeadKind::kTokens, .dense = true, .norm = true};
constexpr EncoderTask kTasks[] = {
    {"ForMaskedLM", kTokens, kTokenHead},
    {"ForPreTraining", kTokens, kTokenHead},
    {"ForSequenceClassification",
     {.kind = HeadKind::kClasses, .dense = true, .act = Activation::kTanh},
     kClassHead},
    {"ForTokenClassification", {.kind = HeadKind::kTags}, kTagHead},
    {"ForQuestionAnswering", {.kind = HeadKind::kSpan}, kSpanHead},
    {"Model", {.kind = HeadKind::kNone}, {}}};

Imported import_bert(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  Imported out;
  ModelConfig* c = &out.config;
  const EncoderTask& task = read_encoder_task(&keys, kTasks);
  const bool tokens = task.head.kind == HeadKind::kTokens;
  BertEncoder encoder(checkpoint, "bert.", &keys, &out);
  set_encoder_head(checkpoint, task, &keys, c);
  if (tokens) c->head.act = c->layers[0].ffn.act.kind;
  c->pad_token_id = keys.integer("pad_token_id", 0, 0, c->vocab_size - 1);
  keys.ignore({"directionality", "pooler_fc_size", "pooler_num_attention_heads",
               "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});
  encoder.read_positions(0, c->head.reads_pairs());
  TensorTable table = encoder.table();
  table.add(kNames);
  const bool untied = tokens && !c->tie_embeddings;
  if (untied) table.add(kUntiedBias);
  if (c->tie_embeddings) {
    const char* const key = "tie_word_embeddings to false";
    check_copy(checkpoint, "cls.predictions.decoder.weight",
               encoder.prefix() + "embeddings.word_embeddings.weight", key);
    check_copy(checkpoint, "cls.predictions.decoder.bias", "cls.predictions.bias", key);
  }
  table.add(task.names);
  out.ignored = {"cls.seq_relationship.*", "cls.predictions.decoder.*", "cls.predictions.bias"};
  if (!tokens) out.ignored.push_back("cls.predictions.*");
  encoder.finish(std::move(table));
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"bert", import_bert}};
  return kRows;
}

}  // namespace moe::arch::bert
