#pragma once
// What fairseq's Transformers have in common: BART, and the models of torchscale and XMoE, whose
// code is built on it. A model is an encoder, a decoder or both.

#include "src/convert/arch/config_keys.h"
#include "src/convert/arch/tensor_table.h"

namespace moe {

/// Rows of embed_positions in front of the first token's: positions count from the padding token's
/// id on, which is 1.
inline constexpr int32_t kFairseqFirstPosition = 2;

/// Attention, cross attention and norms of a layer, which stand in front of a block or behind the
/// sum under the same names. The names begin behind "encoder.layers.L." or "decoder.layers.L.".
std::span<const TensorName> fairseq_layer_names();

/// One side of a model, by what its keys and tensors begin with.
struct FairseqSide {
  const char* name;
  bool causal;

  std::string key(const char* what) const { return std::string(name) + "_" + what; }
  const char* length_key() const {
    return causal ? "max_target_positions" : "max_source_positions";
  }
  std::string tensor(const char* what) const { return std::string(name) + "." + what; }
};
inline constexpr FairseqSide kFairseqEncoder = {"encoder", false};
inline constexpr FairseqSide kFairseqDecoder = {"decoder", true};

enum class FairseqPositions : uint8_t { kNone, kSinusoids, kLearned };

/// The sides that there are, by their embeddings; a checkpoint without any counts as a decoder.
class FairseqModel {
 public:
  explicit FairseqModel(const Checkpoint& checkpoint);

  bool decodes() const { return decodes_; }
  bool both() const { return encodes_ && decodes_; }
  /// The side that has the model's embedding and its head.
  const FairseqSide& main() const { return decodes_ ? kFairseqDecoder : kFairseqEncoder; }
  std::vector<FairseqSide> sides() const;

  /// Embeddings, their norms and the norms behind the last layers.
  std::span<const TensorName> names() const;
  /// Two tables where there are two sides. `layer_names`: what layers have besides
  /// fairseq_layer_names().
  void locate(std::span<const TensorName> layer_names, Imported* out) const;

  /// SIDE_attention_heads, with the width of a head that follows.
  AttentionConfig attention(ConfigKeys* keys, const FairseqSide& side, int32_t d_model) const;
  /// Norms in front of the blocks, or behind their sums.
  void place_norms(bool in_front, LayerConfig* layer) const;
  /// A layer of this side more; decoders of both look at the encoder, with `layer`'s heads.
  void push(const FairseqSide& side, LayerConfig layer, Imported* out) const;

  /// Positions of a side, and how many there are: rows of its table, or what its key says.
  void read_positions(ConfigKeys* keys, const FairseqSide& side, FairseqPositions kind,
                      Imported* out) const;
  /// Multiplies them, learned or not.
  void scale_positions(const FairseqSide& side, float scale, Imported* out) const;
  /// Of both sides: one embedding for source, text and output is what the runtime has. Texts begin
  /// and end with fairseq's "</s>".
  void share_embeddings(ConfigKeys* keys, ModelConfig* config) const;
  /// Leaves out the tables that the config says are the main side's embedding: the encoder's of
  /// both, and the head's where it is tied. Throws when the file has another there.
  void leave_out_copies(Imported* out) const;

 private:
  void check_width(const FairseqSide& side, int32_t d_model) const;
  void check_copy(const std::string& name) const;
  int32_t n_positions(const FairseqSide& side) const;
  DerivedTensor learned_positions(const FairseqSide& side, int32_t d_model) const;

  const Checkpoint& checkpoint_;
  bool encodes_, decodes_;
};

}  // namespace moe
