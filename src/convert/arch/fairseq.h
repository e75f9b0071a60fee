// SPDX-License-Identifier: MIT
#pragma once
// Common parts of fairseq's Transformers: BART, and the models of torchscale and XMoE, which build
// on it. A model is an encoder, a decoder or both.

#include "src/convert/arch/config_keys.h"
#include "src/convert/arch/tensor_table.h"

namespace moe {

/// Rows of embed_positions before the first token's: positions count from the padding token's id,
/// which is 1.
inline constexpr int32_t kFairseqFirstPosition = 2;

/// Attention, cross attention and norms of a layer, with the same names for pre- and post-norm.
/// Names follow "encoder.layers.L." or "decoder.layers.L.".
std::span<const TensorName> fairseq_layer_names();

/// One side of a model, with the prefixes of its keys and tensors.
struct FairseqSide {
  const char* name;
  bool causal;

  std::string key(const char* what) const { return std::string(name) + "_" + what; }
  const char* length_key() const {
    return causal ? "max_target_positions" : "max_source_positions";
  }
  std::string tensor(const char* what) const { return std::string(name) + "." + what; }
};
inline constexpr FairseqSide kFairseqEncoder = {.name = "encoder", .causal = false};
inline constexpr FairseqSide kFairseqDecoder = {.name = "decoder", .causal = true};

enum class FairseqPositions : uint8_t { kNone, kSinusoids, kLearned };

/// Detects the sides by their embeddings; a checkpoint without any is a decoder.
class FairseqModel {
 public:
  explicit FairseqModel(const Checkpoint& checkpoint);

  bool decodes() const { return decodes_; }
  bool both() const { return encodes_ && decodes_; }
  /// The side with the model's embedding and head.
  const FairseqSide& main() const { return decodes_ ? kFairseqDecoder : kFairseqEncoder; }
  std::vector<FairseqSide> sides() const;

  /// Embeddings, their norms and the norms after the last layers.
  std::span<const TensorName> names() const;
  /// Uses two tables for two sides. `layer_names`: further names in layers.
  void locate(std::span<const TensorName> layer_names, Imported* out) const;

  /// SIDE_attention_heads, with the resulting head width.
  AttentionConfig attention(ConfigKeys* keys, const FairseqSide& side, int32_t d_model) const;
  /// Places norms before the blocks, or after their sums.
  void place_norms(bool in_front, LayerConfig* layer) const;
  /// Adds a layer of this side; decoders with an encoder get cross attention with `layer`'s heads.
  void push(const FairseqSide& side, LayerConfig layer, Imported* out) const;

  /// Positions of a side and their number: rows of its table, or the value of its key.
  void read_positions(ConfigKeys* keys, const FairseqSide& side, FairseqPositions kind,
                      Imported* out) const;
  /// Scales them, learned or not.
  void scale_positions(const FairseqSide& side, float scale, Imported* out) const;
  /// For both sides: the runtime has one embedding for source, text and output. Texts begin and end
  /// with fairseq's "</s>".
  void share_embeddings(ConfigKeys* keys, ModelConfig* config) const;
  /// Omits tables that the config declares to be the main side's embedding: the encoder's of both,
  /// and the head's if tied. Throws if the file has different values.
  void leave_out_copies(Imported* out) const;

 private:
  void check_width(const FairseqSide& side, int32_t d_model) const;
  int32_t n_positions(const FairseqSide& side) const;
  DerivedTensor learned_positions(const FairseqSide& side, int32_t d_model) const;

  const Checkpoint& checkpoint_;
  bool encodes_, decodes_;
};

}  // namespace moe
