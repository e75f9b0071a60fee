#pragma once
// What the decoders of `transformers` have in common: the keys of config.json that all of them
// know, and the tensor names that most of them use. An architecture begins with it and adds what is
// its own.

#include "src/convert/arch/config_keys.h"
#include "src/convert/arch/tensor_table.h"

namespace moe {

/// Embedding, head, norms and q, k, v, o; layers under "model.layers.L.".
std::span<const TensorName> decoder_names();
std::span<const TensorName> qkv_bias_names();
std::span<const TensorName> o_bias_name();
std::span<const TensorName> qk_norm_names();
/// mlp.{gate,up,down}_proj and their biases.
std::span<const TensorName> mlp_names();
std::span<const TensorName> mlp_bias_names();
/// mlp.gate, mlp.experts.E.{gate,up,down}_proj, or all experts in mlp.experts.gate_up_proj and
/// mlp.experts.down_proj.
std::span<const TensorName> moe_names();
/// mlp.gate, and all experts in mlp.experts.{gate,up,down}_exps: what GGUF's names are turned into.
std::span<const TensorName> stacked_moe_names();

/// How the checkpoint says it was quantised.
enum class Quantization : uint8_t { kNone, kBitnet, kMxfp4 };

class Decoder {
 public:
  /// Reads sizes, norm, rope, special tokens and tying. Every layer begins as a dense gated FFN of
  /// `intermediate_size` (0 when the key is missing) that sees all positions. `default_theta`: of
  /// rope where no key says it; 0: one must. `default_eps`: the same for norms.
  Decoder(const JsonNode& config, const Checkpoint& checkpoint, float default_theta = 0,
          float default_eps = 0);

  ConfigKeys keys;
  ModelConfig& config() { return out_.config; }
  Array<LayerConfig>& layers() { return out_.config.layers; }
  LayerConfig& layer(size_t l) { return out_.config.layers[l]; }
  void names(std::span<const TensorName> rows) { table_.add(rows); }
  void name(const TensorName& row) { table_.add({&row, 1}); }
  void replace_name(const TensorName& row) { table_.take_only(row); }
  /// The layers behind the last one, "num_nextn_predict_layers" (or `fallback`) of them, predict a
  /// token further on: nothing reads them here.
  void skip_prediction_layers(int32_t fallback);
  void ignore_tensors(const char* pattern) { out_.ignored.push_back(pattern); }
  void precision(const PrecisionRule& rule) { out_.precision.push_back(rule); }

  /// Biases of q, k, v and o where the key says so.
  void attention_bias(const char* key, bool fallback);
  /// Biases of gate, up and down where "mlp_bias" says so.
  void mlp_bias();
  void qk_norm(QkNorm kind);
  /// "clip_qkv": what queries, keys and values are cut to.
  void clip_qkv();
  /// All layers; 0: none.
  void window(int32_t positions);
  /// "sliding_window", or `fallback` when the key is missing (null: 0).
  int32_t sliding_window(int32_t fallback);
  /// "layer_types": `positions` in the layers that are "sliding_attention". False when the key is
  /// missing.
  bool window_by_layer_type(int32_t positions);
  /// Experts in every layer, with a softmax router.
  void experts(const char* count_key, const char* other_count_key, int32_t d_ff,
               RouterWeights weights);
  /// Reads "quantization_config". Anything but `accepted` (and none) is refused. Under kBitnet the
  /// precision rules are set and packed matrices are accepted.
  Quantization quantization(Quantization accepted);

  /// Refuses keys that nobody read; takes tokenizer and generation_config.json along.
  Imported finish();

 private:
  void read_sizes(float default_theta, float default_eps);
  void read_special_tokens();
  void read_bitnet(const JsonNode& node);

  const Checkpoint& checkpoint_;
  Imported out_;
  TensorTable table_{"model.layers.{l}."};
};

/// "rope_parameters", or "rope_theta" with "rope_scaling". `default_theta` as above; `factors`
/// keeps longrope's lists.
RopeConfig read_rope(ConfigKeys& keys, int32_t head_dim, int32_t context, float default_theta,
                     std::deque<std::vector<float>>* factors);

/// A token or a list of them.
void read_eos(const JsonNode& node, ModelConfig* config);

/// The eos ids of generation_config.json, where it has any.
void read_generation_config(const Checkpoint& checkpoint, Imported* out);

/// And tokenizer.json when it is there. A folder
/// that has a tokenizer in another form only is refused with the line of Python that converts it.
void read_companions(const Checkpoint& checkpoint, Imported* out);

}  // namespace moe
