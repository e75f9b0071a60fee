// SPDX-License-Identifier: MIT
// XLM-R (Conneau et al. 2020) and RoBERTa: encoders with the checkpoint's head.

#include "src/convert/arch/bert_encoder.h"
#include "src/convert/arch/copies.h"

namespace moe::arch::roberta {
namespace {

constexpr TensorName kNames[] = {{"embedding.weight", "roberta.embeddings.word_embeddings.weight"},
                                 {"embedding_norm.weight", "roberta.embeddings.LayerNorm.weight"},
                                 {"embedding_norm.bias", "roberta.embeddings.LayerNorm.bias"}};

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

constexpr EncoderTask kTasks[] = {
    {"ForMaskedLM",
     {.kind = HeadKind::kTokens, .dense = true, .norm = true, .act = Activation::kGelu},
     kTokenHead},
    {"ForSequenceClassification",
     {.kind = HeadKind::kClasses, .dense = true, .act = Activation::kTanh},
     kClassHead},
    {"ForTokenClassification", {.kind = HeadKind::kTags}, kTagHead},
    {"ForQuestionAnswering", {.kind = HeadKind::kSpan}, kSpanHead},
    {"Model", {.kind = HeadKind::kNone}, {}}};

Imported import_roberta(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  Imported out;
  ModelConfig* c = &out.config;
  const EncoderTask& task = read_encoder_task(&keys, kTasks);
  BertEncoder encoder(checkpoint, "roberta.", &keys, &out);
  set_encoder_head(checkpoint, task, &keys, c);
  c->pad_token_id = keys.integer("pad_token_id", 1, 0, c->vocab_size - 1);
  encoder.read_positions(c->pad_token_id + 1, false);  // its tokenizers give type 0 alone
  TensorTable table = encoder.table();
  table.add(kNames);
  const bool untied = task.head.kind == HeadKind::kTokens && !c->tie_embeddings;
  if (untied) table.add(kUntiedBias);
  if (c->tie_embeddings) {
    const char* const key = "tie_word_embeddings to false";
    check_copy(checkpoint, "lm_head.decoder.weight",
               encoder.prefix() + "embeddings.word_embeddings.weight", key);
    check_copy(checkpoint, "lm_head.decoder.bias", "lm_head.bias", key);
  }
  table.add(task.names);
  out.ignored = {untied ? "lm_head.bias" : "lm_head.decoder.*"};
  encoder.finish(std::move(table));
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"xlm-roberta", import_roberta},
                                       {"roberta", import_roberta}};
  return kRows;
}

}  // namespace moe::arch::roberta
