// Decoders of torchscale (Ma et al. 2022): X-MoE's cosine router, top-1 and top-2 gates, and
// MH-MoE's branch of it. config.json holds the keys of its DecoderConfig. Left to the run time: the
// capacity that torchscale applies at evaluation, and its random choice of second experts.

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe::arch::torchscale {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kFirstPosition = 2;  // rows of embed_positions before the first token's

constexpr TensorName kNames[] = {
    {"embedding.weight", "decoder.embed_tokens.weight"},
    {"position_embedding.weight", "decoder.embed_positions.weight", {.skipped = kFirstPosition}},
    {"embedding_norm.weight", "decoder.layernorm_embedding.weight"},
    {"embedding_norm.bias", "decoder.layernorm_embedding.bias"},
    {"final_norm.weight", "decoder.layer_norm.weight"},
    {"final_norm.bias", "decoder.layer_norm.bias"},
    {"head.weight", "decoder.output_projection.weight"},
    {"attention_norm.weight", "self_attn_layer_norm.weight"},
    {"attention_norm.bias", "self_attn_layer_norm.bias"},
    {"ffn_norm.weight", "final_layer_norm.weight"},
    {"ffn_norm.bias", "final_layer_norm.bias"},
    {"attention.q.weight", "self_attn.q_proj.weight"},
    {"attention.k.weight", "self_attn.k_proj.weight"},
    {"attention.v.weight", "self_attn.v_proj.weight"},
    {"attention.o.weight", "self_attn.out_proj.weight"},
    {"attention.q.bias", "self_attn.q_proj.bias"},
    {"attention.k.bias", "self_attn.k_proj.bias"},
    {"attention.v.bias", "self_attn.v_proj.bias"},
    {"attention.o.bias", "self_attn.out_proj.bias"},
    {"attention.sub_norm.weight", "self_attn.inner_attn_ln.weight"},
    {"attention.sub_norm.bias", "self_attn.inner_attn_ln.bias"},
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
    {"moe.experts.up.weight", "moe_layer.experts.{e}.fc1.weight"},
    {"moe.experts.up.bias", "moe_layer.experts.{e}.fc1.bias"},
    {"moe.experts.down.weight", "moe_layer.experts.{e}.fc2.weight"},
    {"moe.experts.down.bias", "moe_layer.experts.{e}.fc2.bias"},
    {"moe.experts.sub_norm.weight", "moe_layer.experts.{e}.ffn_layernorm.weight"},
    {"moe.experts.sub_norm.bias", "moe_layer.experts.{e}.ffn_layernorm.bias"}};

void refuse_variants(ConfigKeys* keys) {
  for (const char* key : {"deepnorm", "multiway", "xpos_rel_pos", "no_output_layer", "rms_norm",
                          "glu", "relu_squared", "mhmoe_head_proj", "ffn_head_proj"}) {
    keys->require(key, false);
  }
  keys->require("decoder_normalize_before", true);
  keys->require("rel_pos_buckets", 0);
  keys->ignore({"dropout", "drop_path_rate", "activation_dropout", "bert_init", "max_rel_pos",
                "checkpoint_activations", "fsdp", "ddp_rank", "moe_gating_use_fp32",
                "moe_eval_capacity_token_fraction", "moe_second_expert_policy",
                "moe_normalize_gate_prob_before_dropping", "max_target_positions"});
}

LayerConfig read_layer(ConfigKeys* keys, int32_t d_model) {
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.n_heads = keys->integer("decoder_attention_heads", 1, kMaxWidth);
  a.n_kv_heads = a.n_heads;
  if (d_model % a.n_heads != 0) {
    fail(MOE_ERR_SHAPE, "config.json: decoder_attention_heads %d does not divide %d", a.n_heads,
         d_model);
  }
  a.head_dim = d_model / a.n_heads;
  a.sub_norm = keys->boolean("subln", true);
  layer.ffn.d_ff = keys->integer("decoder_ffn_embed_dim", 1, kMaxWidth);
  layer.ffn.sub_norm = a.sub_norm;
  const Activation kinds[] = {Activation::kGelu, Activation::kRelu};
  layer.ffn.act.kind = keys->has("activation_fn")
                           ? kinds[keys->node("activation_fn").choice({"gelu", "relu"})]
                           : Activation::kGelu;
  return layer;
}

MoeConfig read_experts(ConfigKeys* keys) {
  MoeConfig m;
  m.n_experts = keys->integer("moe_expert_count", 1, 1 << 16);
  m.n_subheads = keys->integer("mhmoe_heads_number", 1, 1, kMaxWidth);
  m.head = m.merge = m.n_subheads > 1;
  const bool top1 = keys->boolean("moe_top1_expert", false);
  m.router.k = top1 ? 1 : 2;
  if (keys->boolean("use_xmoe", false)) {
    m.router.kind = RouterKind::kCosine;
    m.router.gate = CosineGate::kSoftmax;
    m.router.tau = 1;
    m.router.normalise_token = false;
    m.router.topk_norm = top1 ? 0 : 1;
  } else {
    m.router.kind = RouterKind::kSoftmax;
    m.router.weights = top1 ? RouterWeights::kRaw : RouterWeights::kRenormalised;
  }
  return m;
}

const SourceTensor* rows_of(const Checkpoint& checkpoint, const std::string& name) {
  const SourceTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr || (tensor->shape.size() == 2 && tensor->shape[0] <= kMaxWidth)) {
    return tensor;
  }
  fail(MOE_ERR_SHAPE, "tensor %s: expected a matrix, file has %s", name.c_str(),
       shape_text(tensor->shape).c_str());
}

void read_model(ConfigKeys* keys, const Checkpoint& checkpoint, ModelConfig* c) {
  c->vocab_size = keys->integer("vocab_size", 1, 1 << 24);
  c->d_model = keys->integer("decoder_embed_dim", 1, kMaxWidth);
  c->norm = NormKind::kLayer;
  c->norm_eps = keys->number("layernorm_eps", 1e-5f);
  c->tie_embeddings = keys->boolean("share_decoder_input_output_embed", false);
  c->embedding_norm = keys->boolean("layernorm_embedding", false);
  if (!keys->boolean("no_scale_embedding", true)) {
    c->embedding_multiplier = std::sqrt(static_cast<float>(c->d_model));
  }
  const SourceTensor* positions = rows_of(checkpoint, "decoder.embed_positions.weight");
  if (positions == nullptr) {
    c->positions = PositionKind::kNone;
    c->context_length = keys->integer("max_target_positions", 1024, 1, 1 << 24);
  } else {
    c->positions = PositionKind::kLearned;
    c->context_length = static_cast<int32_t>(positions->shape[0]) - kFirstPosition;
  }
}

Imported import_torchscale(const JsonNode& config, const Checkpoint& checkpoint) {
  ConfigKeys keys(config);
  Imported out;
  read_model(&keys, checkpoint, &out.config);
  refuse_variants(&keys);
  const LayerConfig layer = read_layer(&keys, out.config.d_model);
  const int32_t n_layers = keys.integer("decoder_layers", 1, 1024);
  const int32_t moe_freq = keys.integer("moe_freq", 0, 0, 1024);
  const MoeConfig moe = moe_freq > 0 ? read_experts(&keys) : MoeConfig{};
  keys.ignore({"moe_expert_count", "moe_top1_expert", "use_xmoe", "mhmoe_heads_number"});
  for (int32_t l = 0; l < n_layers; ++l) {
    check(out.config.layers.push(layer));
    out.cosine_widths.push_back(0);
    if (moe_freq == 0 || (l + 1) % moe_freq != 0) continue;
    FfnConfig& ffn = out.config.layers[static_cast<size_t>(l)].ffn;
    ffn.kind = FfnKind::kMoe;
    ffn.moe = moe;
    if (moe.router.kind != RouterKind::kCosine) continue;
    const std::string name =
        "decoder.layers." + std::to_string(l) + ".moe_layer.gate.wg_reduction.weight";
    const SourceTensor* reduction = rows_of(checkpoint, name);
    if (reduction == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
    out.cosine_widths.back() = static_cast<int32_t>(reduction->shape[0]);
  }
  keys.check_all_understood();
  check(out.config.name.assign(checkpoint.name()));
  read_companions(checkpoint, &out);
  TensorTable table("decoder.layers.{l}.");
  table.add(kNames);
  locate_by(std::move(table), checkpoint, &out);
  out.ignored = {"decoder.version", "decoder.embed_positions._float_tensor"};
  if (out.config.tie_embeddings) out.ignored.push_back("decoder.output_projection.weight");
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"torchscale", import_torchscale}};
  return kRows;
}

}  // namespace moe::arch::torchscale
