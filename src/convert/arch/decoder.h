// SPDX-License-Identifier: MIT
#pragma once
// Common parts of `transformers` decoders: the config.json keys that all of them have, and the
// tensor names that most use. An architecture starts from this and adds its own.

#include "src/convert/arch/renamed_config.h"
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
/// Mixtral's, which later models took over: block_sparse_moe.gate and
/// block_sparse_moe.experts.E.{w1,w3,w2} for gate, up and down; or mlp.gate and all experts in
/// mlp.experts.gate_up_proj and mlp.experts.down_proj.
std::span<const TensorName> sparse_moe_names();
/// mlp.gate, and all experts in mlp.experts.{gate,up,down}_exps, or gate and up together in
/// mlp.experts.gate_up_exps: the renamed GGUF tensors.
std::span<const TensorName> stacked_moe_names();

/// The layer that guesses tokens after the next one (ModelConfig::n_predictions) in a checkpoint.
struct PredictionLayer {
  const char* layer = "model.layers.{l}.";  // prefix of the tensors that other layers have too
  std::span<const TensorName> names;        // of Part::kPrediction
  std::vector<std::string> tensors;         // patterns of all its tensors
  bool raw = false;                         // ModelConfig::raw_predictions
};

/// Whether the checkpoint has a tensor whose name starts so.
bool has_tensors(const Checkpoint& checkpoint, const std::string& start);

/// A quantisation that the importer reads itself.
enum class Quantization : uint8_t { kNone, kMxfp4 };

class Decoder {
 public:
  /// Reads sizes, norm, rope, special tokens and tying. Every layer starts as a dense gated FFN of
  /// `intermediate_size` (0 if the key is missing) without a window. `default_theta`: of rope if no
  /// key gives it; 0: required. `default_eps`: the same for norms.
  Decoder(const JsonNode& config, const Checkpoint& checkpoint, float default_theta = 0,
          float default_eps = 0);

  ConfigKeys keys;
  ModelConfig& config() { return out_.config; }
  Array<LayerConfig>& layers() { return out_.config.layers; }
  LayerConfig& layer(size_t l) { return out_.config.layers[l]; }
  void names(std::span<const TensorName> rows) { table_.add(rows); }
  void name(const TensorName& row) { table_.add({&row, 1}); }
  void replace_name(const TensorName& row) { table_.take_only(row); }
  /// The prefix of a layer's tensors, if it is not "model.layers.{l}.".
  void layers_under(const char* prefix) { table_.layers_under(prefix); }
  /// Skips the layers after the last one, "num_nextn_predict_layers" (or `fallback`) of them, which
  /// predict further tokens.
  void skip_prediction_layers(int32_t fallback);
  /// The same, but keeps the first of them, DeepSeek-V3's, which GLM-4.5 took over, and Qwen3.5's
  /// in GGUF files. Its other settings are those of like_guessing(), so call it when the layers are
  /// configured.
  void prediction_layers(int32_t fallback);
  /// Adds a layer that guesses. `like`: the layer whose settings it has.
  void add_prediction(const LayerConfig& like, PredictionLayer layer);
  /// Counts layers that are left out.
  void skip_layers(int32_t n) { out_.n_skipped_layers += n; }
  void ignore_tensors(const char* pattern) { out_.ignored.push_back(pattern); }
  void precision(const PrecisionRule& rule) { out_.precision.push_back(rule); }

  /// Replaces the names of q, k and v: all heads of each, in this order, are the rows of one
  /// tensor, "*.weight" or "*.bias", of which `tensors` are alternative names.
  void qkv_in_one(std::initializer_list<const char*> tensors);
  /// Biases of q, k, v and o if the key says so.
  void attention_bias(const char* key, bool fallback);
  /// Biases of gate, up and down if "mlp_bias" says so.
  void mlp_bias();
  void qk_norm(QkNorm kind);
  /// Norms of each block's output and, if `pre`, of its input.
  void out_norms(bool pre);
  /// "clip_qkv": the limit of queries, keys and values.
  void clip_qkv();
  /// Sets the window of all layers; 0: none.
  void window(int32_t positions);
  /// "sliding_window", or `fallback` if the key is missing (null: 0).
  int32_t sliding_window(int32_t fallback);
  /// "layer_types": sets `positions` in the "sliding_attention" layers. False if the key is
  /// missing.
  bool window_by_layer_type(int32_t positions);
  /// Windows as "layer_types" says or, if it is missing, in all layers but every `n`-th.
  void window_except_every(int32_t n);
  /// Gives the layers with a window the rotary positions that split_rope set apart; `local_key` as
  /// there. The windows must be set.
  void local_rope(const char* local_key);
  /// Experts in every layer, with a softmax router; `k_key`: the experts per token.
  void experts(const char* count_key, const char* other_count_key, int32_t d_ff,
               RouterWeights weights, const char* k_key = "num_experts_per_tok");
  /// Reads "quantization_config". Rejects everything except `accepted` (and none).
  void quantization(Quantization accepted);

  /// Rejects keys that were not read; adds tokenizer and generation_config.json.
  Imported finish();

 private:
  void read_sizes(float default_theta, float default_eps);
  bool skip_layer(int32_t layer, bool said);
  bool shares_tables(const std::string& prefix);
  void locate_slots();
  void read_special_tokens();
  /// Norms of single matrices' inputs, if the checkpoint has any.
  void read_in_norms();
  void check_unread();
  void check_layers();

  const Checkpoint& checkpoint_;
  Imported out_;
  TensorTable table_{"model.layers.{l}."};
  std::optional<LayerConfig> guessing_;  // a layer to be added
  PredictionLayer prediction_;           // where its tensors are
};

/// "n_group" and "topk_group", how many groups of experts a router selects from, with their
/// defaults; `count_key`: the number of experts.
void read_expert_groups(ConfigKeys* keys, const char* count_key, int32_t n_groups,
                        int32_t top_groups, RouterConfig* router);

/// "rope_parameters", or "rope_theta" with "rope_scaling". `default_theta` as above; `factors` owns
/// longrope's lists.
RopeConfig read_rope(ConfigKeys& keys, int32_t head_dim, int32_t context, float default_theta,
                     std::deque<std::vector<float>>* factors);

/// Sets the rotary positions of layers with a window apart, for read_local_rope. If
/// "rope_parameters" has the members "full_attention" and "sliding_attention", the first takes its
/// place and the second is set apart; if not, it stays, and positions without scaling are set
/// apart. `local_key`: the file's key for the base of those, `local_theta` its value or default.
/// Throws for any further member.
void split_rope(const char* local_key, const Json& local_theta, RenamedConfig* config);

/// The rotary positions that split_rope set apart; errors name the file's keys. Other arguments as
/// of read_rope.
RopeConfig read_local_rope(ConfigKeys& keys, const char* local_key, int32_t head_dim,
                           int32_t context, std::deque<std::vector<float>>* factors);

/// The length that yarn's scaling is for, if that is longer than `context`: some files extend only
/// the scaling.
int32_t scaled_context(ConfigKeys& keys, const RopeConfig& rope, int32_t context);

/// A token or a list of them.
void read_eos(const JsonNode& node, ModelConfig* config);

/// The eos ids of generation_config.json, if any.
void read_generation_config(const Checkpoint& checkpoint, Imported* out);

/// tokenizer.json, if present. A folder with only another form of tokenizer is rejected with a line
/// of Python that converts it.
void read_companions(const Checkpoint& checkpoint, Imported* out);

}  // namespace moe
