// SPDX-License-Identifier: MIT
// LFM2 (Liquid AI 2025): short convolutions in most layers and attention in the others, dense or
// with experts that are selected by the sigmoid of their score plus a bias.

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/mixer.h"

namespace moe::arch::lfm2 {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxLength = 64;

constexpr TensorName kNames[] = {{"final_norm.weight", "model.embedding_norm.weight"},
                                 {"attention_norm.weight", "operator_norm.weight"},
                                 {"mixer_norm.weight", "operator_norm.weight"},
                                 {"ffn_norm.weight", "ffn_norm.weight"},
                                 {"attention.o.weight", "self_attn.out_proj.weight"}};

constexpr TensorName kMore[] = {{"attention.q_norm.weight", "self_attn.q_layernorm.weight"},
                                {"attention.k_norm.weight", "self_attn.k_layernorm.weight"},
                                {"short_conv.in.weight", "conv.in_proj.weight"},
                                {"short_conv.out.weight", "conv.out_proj.weight"},
                                {"ffn.gate.weight", "feed_forward.w1.weight"},
                                {"ffn.up.weight", "feed_forward.w3.weight"},
                                {"ffn.down.weight", "feed_forward.w2.weight"}};

constexpr TensorName kConvBiases[] = {{"short_conv.in.bias", "conv.in_proj.bias"},
                                      {"short_conv.conv.bias", "conv.conv.bias"},
                                      {"short_conv.out.bias", "conv.out_proj.bias"}};

constexpr Place kGateHalf = {.stacked = true, .parts = 2, .part = 0};
constexpr Place kUpHalf = {.stacked = true, .parts = 2, .part = 1};
constexpr Place kStacked = {.stacked = true};

constexpr TensorName kExperts[] = {
    {"moe.router.weight", "feed_forward.gate.weight"},
    {"moe.experts.gate.weight", "feed_forward.experts.{e}.w1.weight"},
    {"moe.experts.up.weight", "feed_forward.experts.{e}.w3.weight"},
    {"moe.experts.down.weight", "feed_forward.experts.{e}.w2.weight"},
    {"moe.experts.gate.weight", "feed_forward.experts.gate_up_proj", kGateHalf},
    {"moe.experts.up.weight", "feed_forward.experts.gate_up_proj", kUpHalf},
    {"moe.experts.down.weight", "feed_forward.experts.down_proj", kStacked}};

constexpr TensorName kExpertBias[] = {{"moe.router.selection_bias", "feed_forward.expert_bias"},
                                      {"moe.router.selection_bias", "mlp.gate.exp_probs_b.bias"}};

// As the tensors of a GGUF file are called; some have the final norm under the usual name.
constexpr TensorName kGguf[] = {{"final_norm.weight", "model.norm.weight"},
                                {"attention_norm.weight", "input_layernorm.weight"},
                                {"mixer_norm.weight", "input_layernorm.weight"},
                                {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                {"attention.o.weight", "self_attn.o_proj.weight"},
                                {"attention.q_norm.weight", "self_attn.q_norm.weight"},
                                {"attention.k_norm.weight", "self_attn.k_norm.weight"},
                                {"ffn.gate.weight", "mlp.gate_proj.weight"},
                                {"ffn.up.weight", "mlp.up_proj.weight"},
                                {"ffn.down.weight", "mlp.down_proj.weight"}};

// Keys by the names that the other decoders have; published files have older ones besides.
RenamedConfig with_common_keys(const JsonNode& config) {
  RenamedConfig c(config);
  c.rename("norm_eps", "rms_norm_eps");
  c.rename("block_ff_dim", "intermediate_size");
  c.rename("tie_embedding", "tie_word_embeddings");
  c.fallback("tie_word_embeddings", true);
  c.fallback("hidden_act", "silu");
  return c;
}

// Keys that say again what others say, or how weights were initialised.
void check_repeated(ConfigKeys* keys, const ModelConfig& config) {
  for (const char* key : {"block_dim", "conv_dim", "conv_dim_out"}) {
    keys->require(key, config.d_model);
  }
  keys->require("num_heads", config.layers[0].attention.n_heads);
  keys->require("hidden_act", "silu");
  keys->require("block_use_swiglu", true);
  keys->require("use_pos_enc", true);
  keys->ignore({"block_norm_eps", "block_mlp_init_scale", "block_out_init_scale",
                "block_use_xavier_init", "conv_use_xavier_init"});
}

// Two thirds of the given width, times a factor, rounded up to whole blocks.
int32_t adjusted_width(ConfigKeys* keys, int32_t width) {
  const auto block = int64_t{keys->integer("block_multiple_of", 256, 1, kMaxWidth)};
  const bool adjusts = keys->boolean("block_auto_adjust_ff_dim", true);
  const float factor = keys->number("block_ffn_dim_multiplier", 1);
  if (!adjusts) return width;
  const double scaled = static_cast<double>(factor) * static_cast<double>(int64_t{2} * width / 3);
  if (!(scaled >= 1 && scaled <= kMaxWidth)) {
    fail_value(keys->node("block_ffn_dim_multiplier"), "a width of 1 to 1048576 is");
  }
  return static_cast<int32_t>((static_cast<int64_t>(scaled) + block - 1) / block * block);
}

// The layers with attention by their type, by their index, or both.
std::vector<bool> convolution_layers(ConfigKeys* keys, size_t n_layers) {
  const bool listed = keys->has("full_attn_idxs");
  std::vector<bool> convolves(n_layers, listed);
  for (const JsonNode& index : keys->list("full_attn_idxs")) {
    const auto l = static_cast<size_t>(index.integer(0, kMaxLayers));
    if (l < n_layers) convolves[l] = false;
  }
  const std::vector<JsonNode> types = keys->list("layer_types", n_layers);
  for (size_t l = 0; l < types.size(); ++l) {
    const bool is_conv = types[l].choice({"full_attention", "conv"}) == 1;
    if (listed && is_conv != convolves[l]) fail_different(types[l], keys->node("full_attn_idxs"));
    convolves[l] = is_conv;
  }
  return convolves;
}

void add_convolutions(Decoder* d) {
  const int32_t length = d->keys.integer("conv_L_cache", 3, 1, kMaxLength);
  MixerConfig mixer = built_mixer("short_conv");
  mixer.params[find_param(mixer_info(mixer), "length")] = static_cast<float>(length);
  const std::vector<bool> convolves = convolution_layers(&d->keys, d->layers().size());
  for (size_t l = 0; l < convolves.size(); ++l) {
    if (!convolves[l]) continue;
    LayerConfig& layer = d->layer(l);
    layer.has_attention = false;
    layer.attention = {};
    layer.has_mixer = true;
    layer.mixer.mixer = mixer;
  }
  d->name({"short_conv.conv.weight", "conv.conv.weight", {.taps = length}});
  if (d->keys.boolean("conv_bias", false)) d->names(kConvBiases);
}

Decoder begin(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 1000000, 1e-5f);
  for (const TensorName& row : kNames) d.replace_name(row);
  d.names(kMore);
  d.names(kGguf);
  for (LayerConfig& layer : d.layers()) layer.attention.qk_norm = QkNorm::kHead;
  check_repeated(&d.keys, d.config());
  d.quantization(Quantization::kNone);
  return d;
}

Imported import_lfm2(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig renamed = with_common_keys(config);
  const JsonNode node = renamed.node();
  Decoder d = begin(node, checkpoint);
  const int32_t width = adjusted_width(&d.keys, d.layer(0).ffn.d_ff);
  for (LayerConfig& layer : d.layers()) layer.ffn.d_ff = width;
  add_convolutions(&d);
  return d.finish();
}

Imported import_lfm2_moe(const JsonNode& config, const Checkpoint& checkpoint) {
  const RenamedConfig renamed = with_common_keys(config);
  const JsonNode node = renamed.node();
  Decoder d = begin(node, checkpoint);
  const FfnConfig dense = d.layer(0).ffn;
  const auto n_dense = static_cast<size_t>(d.keys.integer("num_dense_layers", 2, 0, kMaxLayers));
  const bool renormalised = d.keys.boolean("norm_topk_prob", true);
  const float scale = d.keys.number("routed_scaling_factor", 1);
  d.names(kExperts);
  d.name({"moe.router.weight", "mlp.gate.weight"});  // GGUF's
  if (d.keys.boolean("use_expert_bias", true)) d.names(kExpertBias);
  d.experts("num_experts", "num_local_experts",
            d.keys.integer("moe_intermediate_size", 1, kMaxWidth),
            renormalised ? RouterWeights::kRenormalised : RouterWeights::kRaw);
  for (size_t l = 0; l < d.layers().size(); ++l) {
    FfnConfig& ffn = d.layer(l).ffn;
    ffn.moe.router.kind = RouterKind::kSigmoid;
    ffn.moe.router.scale = scale;
    if (l < n_dense) ffn = dense;
  }
  add_convolutions(&d);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"lfm2", import_lfm2}, {"lfm2_moe", import_lfm2_moe}};
  return kRows;
}

}  // namespace moe::arch::lfm2
