// SPDX-License-Identifier: MIT
#pragma once
// Common parts of BERT, RoBERTa and XLM-R: config.json keys, tensor names, and the heads of
// `transformers`.

#include "src/convert/arch/decoder.h"

namespace moe {

/// A head of `transformers`: the suffix of the class name, and where its tensors are.
struct EncoderTask {
  const char* suffix;
  HeadConfig head;
  std::span<const TensorName> names;
};

/// The task of "architectures". MOE_ERR_FORMAT, listing the known ones, if there is none.
const EncoderTask& read_encoder_task(ConfigKeys* keys, std::span<const EncoderTask> tasks);

/// Sets `head`. One without tokens has as many labels as its matrix has rows.
void set_encoder_head(const Checkpoint& checkpoint, const EncoderTask& task, ConfigKeys* keys,
                      ModelConfig* config);

/// Ignores what cross-encoders of `sentence-transformers` say about showing the head's outputs.
void ignore_score_keys(ConfigKeys* keys);

/// Adds name, tokenizer (also a vocab.txt) and places of tensors; the configuration is complete.
void finish_encoder(TensorTable table, const Checkpoint& checkpoint, Imported* out);

/// Layers with a norm after each block, learned positions and one norm of the embedding.
class BertEncoder {
 public:
  /// `prefix`: of the names in a checkpoint with a head, such as "bert.". `first_position`: row of
  /// the table that the first token gets. Reads sizes, layers and positions; the positions in `out`
  /// include the first text type.
  BertEncoder(const Checkpoint& checkpoint, const char* prefix, ConfigKeys* keys, Imported* out);
  /// Position rows from the first token's on, each plus the row of the text type 0; with `pairs`
  /// also each plus that of type 1, if there is one.
  void read_positions(int32_t first_position, bool pairs);
  /// The prefix that the checkpoint uses: as given, or "".
  const std::string& prefix() const { return prefix_; }
  /// Names of layers, and of the embedding without a prefix.
  TensorTable table() const;
  /// Rejects keys that were not read; adds tokenizer and tensors that no model needs.
  void finish(TensorTable table);

 private:
  void read_layers();

  const Checkpoint& checkpoint_;
  std::string prefix_;
  ConfigKeys* keys_;
  Imported* out_;
};

}  // namespace moe
