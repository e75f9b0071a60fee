// SPDX-License-Identifier: MIT
// Nemotron-H (NVIDIA 2025) and Nemotron 3 Nano: each layer is one block, Mamba2, attention without
// positions, a network of squared ReLUs, or experts of those that are selected as in DeepSeek-V3.

#include "formats/import/failure.h"
#include "src/convert/arch/copies.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/mamba.h"

namespace moe::arch::nemotron_h {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr Place kStacked = {.stacked = true};

constexpr TensorName kNames[] = {{"embedding.weight", "backbone.embeddings.weight"},
                                 {"final_norm.weight", "backbone.norm_f.weight"},
                                 {"attention_norm.weight", "norm.weight"},
                                 {"mixer_norm.weight", "norm.weight"},
                                 {"ffn_norm.weight", "norm.weight"},
                                 {"attention.q.weight", "mixer.q_proj.weight"},
                                 {"attention.k.weight", "mixer.k_proj.weight"},
                                 {"attention.v.weight", "mixer.v_proj.weight"},
                                 {"attention.o.weight", "mixer.o_proj.weight"}};

constexpr TensorName kMore[] = {
    {"embedding.weight", "model.embeddings.weight"},
    {"final_norm.weight", "model.norm_f.weight"},
    {"mamba2.in.weight", "mixer.in_proj.weight"},
    {"mamba2.conv.weight", "mixer.conv1d.weight"},
    {"mamba2.dt_bias", "mixer.dt_bias"},
    {"mamba2.a_log", "mixer.A_log"},
    {"mamba2.d", "mixer.D"},
    {"mamba2.norm.weight", "mixer.norm.weight"},
    {"mamba2.out.weight", "mixer.out_proj.weight"},
    {"ffn.up.weight", "mixer.up_proj.weight"},
    {"ffn.down.weight", "mixer.down_proj.weight"},
    {"moe.router.weight", "mixer.gate.weight"},
    {"moe.router.selection_bias", "mixer.gate.e_score_correction_bias"},
    {"moe.shared.up.weight", "mixer.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mixer.shared_experts.down_proj.weight"}};

constexpr TensorName kExperts[] = {
    {"moe.experts.up.weight", "mixer.experts.{e}.up_proj.weight"},
    {"moe.experts.down.weight", "mixer.experts.{e}.down_proj.weight"}};
constexpr TensorName kAllExperts[] = {
    {"moe.experts.up.weight", "mixer.experts.up_proj", kStacked},
    {"moe.experts.down.weight", "mixer.experts.down_proj", kStacked}};

constexpr TensorName kConvBias[] = {{"mamba2.conv.bias", "mixer.conv1d.bias"}};
constexpr TensorName kMambaBias[] = {{"mamba2.in.bias", "mixer.in_proj.bias"},
                                     {"mamba2.out.bias", "mixer.out_proj.bias"}};
constexpr TensorName kMlpBias[] = {{"ffn.up.bias", "mixer.up_proj.bias"},
                                   {"ffn.down.bias", "mixer.down_proj.bias"},
                                   {"moe.shared.up.bias", "mixer.shared_experts.up_proj.bias"},
                                   {"moe.shared.down.bias", "mixer.shared_experts.down_proj.bias"}};

enum class Block : uint8_t { kMamba, kAttention, kMlp, kMoe };

// The list of names, or the older string of letters, both a block per layer.
std::vector<Block> read_blocks(const JsonNode& config) {
  std::vector<Block> out;
  const char* first = nullptr;
  const auto take = [&](const char* key, std::vector<Block> blocks) {
    if (first != nullptr && blocks != out) fail_different(config.at(first), config.at(key));
    first = key;
    out = std::move(blocks);
  };
  for (const char* key : {"layers_block_type", "layer_types"}) {
    if (!config.has(key)) continue;
    std::vector<Block> blocks;
    for (const JsonNode& type : config.at(key).elements()) {
      constexpr Block kOf[] = {Block::kMamba,     Block::kMamba, Block::kAttention,
                               Block::kAttention, Block::kMlp,   Block::kMoe};
      blocks.push_back(kOf[type.choice(
          {"mamba", "linear_attention", "attention", "full_attention", "mlp", "moe"})]);
    }
    take(key, std::move(blocks));
  }
  const char* const letters = "hybrid_override_pattern";
  if (first != nullptr && !config.has(letters)) return out;
  const JsonNode pattern = config.at(letters);
  std::vector<Block> blocks;
  for (const char letter : pattern.string()) {
    constexpr std::string_view kLetters = "M*-E";
    const size_t at = kLetters.find(letter);
    if (at == kLetters.npos) pattern.fail_expected("letters M, *, - and E");
    blocks.push_back(static_cast<Block>(at));
  }
  take(letters, std::move(blocks));
  return out;
}

// config.json with the keys of other decoders and of Granite's Mamba2, and what its readers take
// for granted.
RenamedConfig as_others(const JsonNode& config, size_t n_layers) {
  RenamedConfig c(config);
  const auto rename = [&](const char* from, const char* to, const Json& fallback) {
    c.rename(from, to);
    c.fallback(to, fallback);
  };
  c.rename("norm_eps", "rms_norm_eps");
  rename("layer_norm_epsilon", "rms_norm_eps", 1e-5);
  rename("mlp_hidden_act", "hidden_act", "relu2");
  rename("mamba_num_heads", "mamba_n_heads", 128);
  rename("mamba_head_dim", "mamba_d_head", 64);
  rename("n_groups", "mamba_n_groups", 8);
  rename("ssm_state_size", "mamba_d_state", 128);
  rename("conv_kernel", "mamba_d_conv", 4);
  rename("chunk_size", "mamba_chunk_size", 128);
  c.fallback("num_hidden_layers", n_layers);
  c.fallback("head_dim", 128);
  for (const char* key : {"layers_block_type", "layer_types", "hybrid_override_pattern"}) {
    c.erase(key);
  }
  return c;
}

// One kind of experts: plain, with a shared one beside them.
FfnConfig read_experts(Decoder* d, const FfnConfig& dense) {
  ConfigKeys& keys = d->keys;
  keys.require("moe_latent_size", nullptr);
  FfnConfig ffn = dense;
  ffn.kind = FfnKind::kMoe;
  ffn.d_ff = keys.integer("moe_intermediate_size", 1, kMaxWidth);
  ffn.moe.n_experts = keys.integer("n_routed_experts", 1, 1 << 16);
  ffn.moe.shared.d_ff = keys.integer("moe_shared_expert_intermediate_size", 1, kMaxWidth);
  RouterConfig& router = ffn.moe.router;
  router.kind = RouterKind::kSigmoid;
  router.weights =
      keys.boolean("norm_topk_prob", true) ? RouterWeights::kRenormalised : RouterWeights::kRaw;
  router.k = keys.integer("num_experts_per_tok", 1, ffn.moe.n_experts);
  router.scale = keys.number("routed_scaling_factor", 1);
  read_expert_groups(&keys, "n_routed_experts", 1, 1, &router);
  return ffn;
}

void set_layer(Block block, const MixerConfig& mamba, const FfnConfig& experts,
               LayerConfig* layer) {
  layer->attention.rope = {};
  layer->ffn.gated = false;
  const bool is_ffn = block == Block::kMlp || block == Block::kMoe;
  if (block == Block::kMamba) replace_attention(mamba, layer);
  if (block == Block::kMoe) layer->ffn = experts;
  if (is_ffn) {
    layer->has_attention = false;
    layer->attention = {};
  } else {
    layer->has_ffn = false;
    layer->ffn = {};
  }
}

void read_layers(Decoder* d, const std::vector<Block>& blocks) {
  if (blocks.size() != d->layers().size()) {
    fail(MOE_ERR_SHAPE, "config.json: num_hidden_layers %zu, but %zu blocks are listed",
         d->layers().size(), blocks.size());
  }
  bool any_moe = false, any_mamba = false, any_mlp = false;
  for (const Block block : blocks) {
    any_moe |= block == Block::kMoe;
    any_mamba |= block == Block::kMamba;
    any_mlp |= block == Block::kMlp;
  }
  FfnConfig dense = d->layer(0).ffn;
  dense.gated = false;
  if (any_mlp) (void)d->keys.integer("intermediate_size", 1, kMaxWidth);
  const FfnConfig experts = any_moe ? read_experts(d, dense) : FfnConfig{};
  const MixerConfig mamba = any_mamba ? read_mamba(d, 0) : MixerConfig{};
  for (size_t l = 0; l < blocks.size(); ++l) set_layer(blocks[l], mamba, experts, &d->layer(l));
}

Imported import_nemotron_h(const JsonNode& config, const Checkpoint& checkpoint) {
  const std::vector<Block> blocks = read_blocks(config);
  const RenamedConfig renamed = as_others(config, blocks.size());
  const JsonNode node = renamed.node();
  Decoder d(node, checkpoint, 10000);
  const bool plain = checkpoint.find("model.embeddings.weight") != nullptr;
  if (d.config().tie_embeddings) {
    const char* const original = plain ? "model.embeddings.weight" : "backbone.embeddings.weight";
    check_copy(checkpoint, "lm_head.weight", original, "tie_word_embeddings to false");
  }
  d.layers_under(plain ? "model.layers.{l}." : "backbone.layers.{l}.");
  for (const TensorName& row : kNames) d.replace_name(row);
  if (plain) d.replace_name({"final_norm.weight", "model.norm_f.weight"});
  d.names(kMore);
  const bool gguf = !checkpoint.metadata().is_null();
  d.names(gguf ? kAllExperts : kExperts);
  d.names(gguf ? kExperts : kAllExperts);
  if (d.keys.boolean("use_conv_bias", true)) d.names(kConvBias);
  if (d.keys.boolean("use_bias", false)) d.names(kMambaBias);
  if (d.keys.boolean("mlp_bias", false)) d.names(kMlpBias);
  read_layers(&d, blocks);
  d.keys.require("mamba_hidden_act", "silu");
  d.keys.require("attention_bias", false);
  d.keys.require("sliding_window", nullptr);
  // Sizes that others give, training (time_step_min is that of some Python code only, and there of
  // a prompt but not of later tokens), layers that predict further tokens, and what attention
  // without positions does not need.
  d.keys.ignore({"expand",
                 "mamba_expand",
                 "mamba_proj_bias",
                 "mamba_ssm_cache_dtype",
                 "n_shared_experts",
                 "moe_shared_expert_overlap",
                 "time_step_floor",
                 "time_step_max",
                 "time_step_min",
                 "rescale_prenorm_residual",
                 "residual_in_fp32",
                 "use_mamba_kernels",
                 "num_logits_to_keep",
                 "num_nextn_predict_layers",
                 "mtp_layers_block_type",
                 "mtp_hybrid_override_pattern",
                 "partial_rotary_factor",
                 "rope_theta",
                 "n_routed_experts",
                 "num_experts_per_tok",
                 "moe_intermediate_size",
                 "moe_shared_expert_intermediate_size",
                 "n_group",
                 "topk_group",
                 "norm_topk_prob",
                 "routed_scaling_factor",
                 "moe_latent_size",
                 "mamba_n_heads",
                 "mamba_d_head",
                 "mamba_n_groups",
                 "mamba_d_state",
                 "mamba_d_conv",
                 "mamba_chunk_size",
                 "time_step_limit"});
  d.ignore_tensors("mtp.*");
  if (gguf) d.skip_prediction_layers(0);
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  turn_mamba_convolutions(checkpoint, &out);
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"nemotron_h", import_nemotron_h}};
  return kRows;
}

}  // namespace moe::arch::nemotron_h
