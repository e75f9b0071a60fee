// SPDX-License-Identifier: MIT
// torchscale (Ma et al. 2022): encoders, decoders and both, with X-MoE's cosine router, top-1 and
// top-2 gates, and the decoders of MH-MoE's repository, whose copy of torchscale has top-k gates,
// RMS norms, rotary positions and gated networks. config.json contains the keys of its
// EncoderConfig, DecoderConfig or EncoderDecoderConfig. Not imported: the capacity at evaluation
// (set it at run time) and the random choice of second experts.

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/fairseq.h"
#include "src/convert/arch/torchscale_keys.h"

namespace moe::arch::torchscale {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

constexpr TensorName kNames[] = {
    {"attention.sub_norm.weight", "self_attn.inner_attn_ln.weight"},
    {"attention.sub_norm.bias", "self_attn.inner_attn_ln.bias"},
    {"ffn.gate.weight", "ffn.fc3.weight"},
    {"ffn.gate.bias", "ffn.fc3.bias"},
    {"ffn.up.weight", "ffn.fc1.weight"},
    {"ffn.up.bias", "ffn.fc1.bias"},
    {"ffn.down.weight", "ffn.fc2.weight"},
    {"ffn.down.bias", "ffn.fc2.bias"},
    {"ffn.sub_norm.weight", "ffn.ffn_layernorm.weight"},
    {"ffn.sub_norm.bias", "ffn.ffn_layernorm.bias"},
    {"moe.router.weight", "moe_layer.gate.wg.weight"},
    {"moe.router.proj.weight", "moe_layer.gate.wg_reduction.weight"},
    {"moe.router.embedding.weight", "moe_layer.gate.wg"},
    {"moe.head.weight", "moe_layer.multi_heads.weight"},
    {"moe.head.bias", "moe_layer.multi_heads.bias"},
    {"moe.merge.weight", "moe_layer.out_proj.weight"},
    {"moe.merge.bias", "moe_layer.out_proj.bias"},
    {"moe.experts.gate.weight", "moe_layer.experts.{e}.fc3.weight"},
    {"moe.experts.gate.bias", "moe_layer.experts.{e}.fc3.bias"},
    {"moe.experts.up.weight", "moe_layer.experts.{e}.fc1.weight"},
    {"moe.experts.up.bias", "moe_layer.experts.{e}.fc1.bias"},
    {"moe.experts.down.weight", "moe_layer.experts.{e}.fc2.weight"},
    {"moe.experts.down.bias", "moe_layer.experts.{e}.fc2.bias"},
    {"moe.experts.sub_norm.weight", "moe_layer.experts.{e}.ffn_layernorm.weight"},
    {"moe.experts.sub_norm.bias", "moe_layer.experts.{e}.ffn_layernorm.bias"}};

constexpr TensorName kPlainHead[] = {{"head.weight", "encoder.output_projection.weight"}};

// fairseq's torchscale examples have their own head for encoders.
constexpr TensorName kMaskedHead[] = {
    {"head.dense.weight", "encoder.output_projection.dense.weight"},
    {"head.dense.bias", "encoder.output_projection.dense.bias"},
    {"head.norm.weight", "encoder.output_projection.layer_norm.weight"},
    {"head.norm.bias", "encoder.output_projection.layer_norm.bias"},
    {"head.weight", "encoder.output_projection.weight"},
    {"head.bias", "encoder.output_projection.bias"}};

const SourceTensor* rows_of(const Checkpoint& checkpoint, const std::string& name) {
  const SourceTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr || (tensor->shape.size() == 2 && tensor->shape[0] <= kMaxWidth)) {
    return tensor;
  }
  fail(MOE_ERR_SHAPE, "tensor %s: expected a matrix, file has %s", name.c_str(),
       shape_text(tensor->shape).c_str());
}

class Torchscale {
 public:
  Torchscale(const JsonNode& config, const Checkpoint& checkpoint)
      : keys_(config), checkpoint_(checkpoint), model_(checkpoint) {}
  Imported read();

 private:
  ModelConfig& config() { return out_.config; }
  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  void read_sizes();
  bool in_front(const FairseqSide& side);
  LayerConfig read_layer(const FairseqSide& side);
  void read_layers(const FairseqSide& side, const MoeConfig& experts);
  void read_cosine_width(const FairseqSide& side, int32_t layer);
  void read_depth(const FairseqSide& side, int32_t n_layers);
  void read_positions();
  void read_rotary();
  FairseqPositions positions_of(const FairseqSide& side) const;
  std::span<const TensorName> read_head();
  Imported finish(std::span<const TensorName> head);

  ConfigKeys keys_;
  const Checkpoint& checkpoint_;
  FairseqModel model_;
  Imported out_;
  bool deepnorm_ = false;
};

void Torchscale::read_sizes() {
  ModelConfig& c = config();
  c.vocab_size = keys_.integer("vocab_size", 1, 1 << 24);
  c.d_model = keys_.integer(model_.main().key("embed_dim").c_str(), 1, kMaxWidth);
  if (model_.both()) keys_.require("encoder_embed_dim", c.d_model);
  c.norm = keys_.boolean("rms_norm", false) ? NormKind::kRms : NormKind::kLayer;
  c.norm_eps = keys_.eps("layernorm_eps", 1e-5f);
  c.embedding_norm = keys_.boolean("layernorm_embedding", false);
  if (!keys_.boolean("no_scale_embedding", true)) {
    c.embedding_multiplier = std::sqrt(static_cast<float>(c.d_model));
  }
}

// torchscale's constructors set it if subln is true, and a partial config does not show whether
// subln was.
bool Torchscale::in_front(const FairseqSide& side) {
  const std::string key = side.key("normalize_before");
  const bool front = keys_.boolean(key.c_str(), !deepnorm_);
  if (!front && !deepnorm_ && !keys_.has("subln")) {
    fail_value(keys_.node(key.c_str()),
               "with \"subln\" written too it is, as torchscale makes it true wherever subln is "
               "true, its default");
  }
  return front;
}

LayerConfig Torchscale::read_layer(const FairseqSide& side) {
  LayerConfig layer;
  layer.attention = model_.attention(&keys_, side, config().d_model);
  layer.attention.sub_norm = layer.ffn.sub_norm = keys_.boolean("subln", !deepnorm_);
  model_.place_norms(in_front(side), &layer);
  layer.attention.n_kv_heads =
      keys_.integer("n_kv_heads", layer.attention.n_heads, 1, layer.attention.n_heads);
  read_torchscale_rope(&keys_, &layer.attention);
  layer.ffn.d_ff = keys_.integer(side.key("ffn_embed_dim").c_str(), 1, kMaxWidth);
  layer.ffn.act.kind = torchscale_activation(&keys_);
  return layer;
}

void Torchscale::read_cosine_width(const FairseqSide& side, int32_t layer) {
  const std::string name =
      side.tensor("layers.") + std::to_string(layer) + ".moe_layer.gate.wg_reduction.weight";
  const SourceTensor* reduction = rows_of(checkpoint_, name);
  if (reduction == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
  out_.cosine_widths.back() = static_cast<int32_t>(reduction->shape[0]);
}

// DeepNorm (Wang et al. 2022) norms a x + f(x). Here it is x + f(x) / a, which is equivalent if the
// norm's epsilon is divided by a^2 and everything before the embedding's norm by a.
void Torchscale::read_depth(const FairseqSide& side, int32_t n_layers) {
  if (!deepnorm_) return;
  if (model_.both()) {
    fail_value(keys_.node("deepnorm"),
               "encoder and decoder would weigh their residuals differently; of one alone it is");
  }
  if (in_front(side)) {
    fail_value(keys_.node("deepnorm"), "without " + side.key("normalize_before") + " it is");
  }
  ModelConfig& c = config();
  c.residual_multiplier = static_cast<float>(std::pow(2.0 * n_layers, -0.25));
  c.norm_eps *= c.residual_multiplier * c.residual_multiplier;
  if (c.embedding_norm) c.embedding_multiplier *= c.residual_multiplier;
}

void Torchscale::read_layers(const FairseqSide& side, const MoeConfig& experts) {
  const LayerConfig dense = read_layer(side);
  const int32_t n_layers = keys_.integer(side.key("layers").c_str(), 1, 1024);
  const int32_t moe_freq = keys_.integer("moe_freq", 0, 0, 1024);
  const int32_t expert_width = keys_.integer("moe_ffn_dim", -1, -1, kMaxWidth);
  if (expert_width == 0) keys_.node("moe_ffn_dim").fail_expected("-1 or a width of 1 or more");
  const bool gated = keys_.boolean("glu", false);  // else tensors show whether there are gates
  for (int32_t l = 0; l < n_layers; ++l) {
    const bool moe = moe_freq > 0 && (l + 1) % moe_freq == 0;
    LayerConfig layer = dense;
    if (moe) {
      layer.ffn.kind = FfnKind::kMoe;
      layer.ffn.moe = experts;
      if (expert_width > 0) layer.ffn.d_ff = expert_width;
    }
    const std::string network = side.tensor("layers.") + std::to_string(l) +
                                (moe ? ".moe_layer.experts.0" : ".ffn") + ".fc3.weight";
    layer.ffn.gated = gated || has(network);
    model_.push(side, layer, &out_);
    if (moe && experts.router.kind == RouterKind::kCosine) read_cosine_width(side, l);
  }
  const bool source = model_.both() && !side.causal;
  bool& norm = source ? config().encoder_norm : config().final_norm;
  norm = in_front(side) && (side.causal || keys_.boolean("normalize_output", true));
  read_depth(side, n_layers);
}

// Rotary positions stand for the table, which such a decoder does not have.
void Torchscale::read_rotary() {
  const FairseqSide& side = model_.main();
  if (model_.both() || !side.causal) {
    fail_value(keys_.node("rotary_embed"), "of a decoder alone it is");
  }
  if (positions_of(side) != FairseqPositions::kNone) {
    fail_value(keys_.node("rotary_embed"), "without embed_positions it is");
  }
  model_.read_positions(&keys_, side, FairseqPositions::kNone, &out_);
  config().positions = PositionKind::kRope;
}

FairseqPositions Torchscale::positions_of(const FairseqSide& side) const {
  if (has(side.tensor("embed_positions.weight"))) return FairseqPositions::kLearned;
  const bool formula = has(side.tensor("embed_positions._float_tensor"));
  return formula ? FairseqPositions::kSinusoids : FairseqPositions::kNone;
}

void Torchscale::read_positions() {
  if (keys_.boolean("rotary_embed", false)) {
    read_rotary();
    return;
  }
  const bool absent = positions_of(model_.main()) == FairseqPositions::kNone;
  for (const FairseqSide& side : model_.sides()) {
    const FairseqPositions kind = positions_of(side);
    if ((kind == FairseqPositions::kNone) != absent) {
      fail(MOE_ERR_UNSUPPORTED,
           "tensor encoder.embed_positions.weight: encoder and decoder both have positions, or "
           "neither has");
    }
    model_.read_positions(&keys_, side, kind, &out_);
  }
  if (!deepnorm_ || !config().embedding_norm || absent) return;
  model_.scale_positions(model_.main(), config().residual_multiplier, &out_);
}

// Tensor names of an encoder's head.
std::span<const TensorName> Torchscale::read_head() {
  ModelConfig& c = config();
  keys_.ignore({"share_encoder_input_output_embed", "share_decoder_input_output_embed",
                "share_all_embeddings"});
  if (model_.both()) model_.share_embeddings(&keys_, &c);
  if (model_.decodes()) {
    keys_.require("no_output_layer", false);
    c.tie_embeddings |= keys_.boolean("share_decoder_input_output_embed", false);
    return {};
  }
  const bool masked = has("encoder.output_projection.dense.weight");
  const bool own = has("encoder.output_projection.weight");
  const bool shared = keys_.boolean("share_encoder_input_output_embed", false);
  const bool none = keys_.boolean("no_output_layer", false);  // from the constructor
  if (!masked && !own && none) {
    c.head.kind = HeadKind::kNone;
    return {};
  }
  if (!masked && !own && !shared) {
    fail(MOE_ERR_NOT_FOUND,
         "tensor encoder.output_projection.weight is missing; without it config.json says "
         "\"no_output_layer\": true");
  }
  c.tie_embeddings = shared;
  c.head.dense = c.head.norm = masked;
  if (masked) c.head.act = c.layers[0].ffn.act.kind;
  return masked ? std::span<const TensorName>(kMaskedHead) : kPlainHead;
}

Imported Torchscale::finish(std::span<const TensorName> head) {
  const bool biases = !keys_.boolean("no_bias", false);
  keys_.check_all_understood();
  check(config().name.assign(checkpoint_.name()));
  read_companions(checkpoint_, &out_);
  std::vector<TensorName> names(std::begin(kNames), std::end(kNames));
  names.insert(names.end(), head.begin(), head.end());
  model_.locate(names, &out_);
  if (!biases) leave_out_linear_biases(&out_);
  for (const char* name :
       {"*.version", "*.embed_positions._float_tensor", "*.rotary_emb.inv_freq"}) {
    out_.ignored.push_back(name);
  }
  model_.leave_out_copies(&out_);
  return std::move(out_);
}

Imported Torchscale::read() {
  read_sizes();
  refuse_torchscale_variants(&keys_);
  deepnorm_ = keys_.boolean("deepnorm", false);
  MoeConfig experts;
  if (keys_.integer("moe_freq", 0, 0, 1024) > 0)
    experts = read_torchscale_experts(&keys_, config().d_model);
  keys_.ignore({"moe_expert_count", "moe_top1_expert", "moe_top_k", "use_xmoe",
                "mhmoe_heads_number", "moe_ffn_dim", "normalize_output"});
  for (const FairseqSide& side : model_.sides()) read_layers(side, experts);
  read_positions();
  return finish(read_head());
}

Imported import_torchscale(const JsonNode& config, const Checkpoint& checkpoint) {
  return Torchscale(config, checkpoint).read();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"torchscale", import_torchscale}};
  return kRows;
}

}  // namespace moe::arch::torchscale
