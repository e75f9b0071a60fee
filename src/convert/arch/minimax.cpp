// SPDX-License-Identifier: MIT
// MiniMax (2025): M2, with a sigmoid router with a bias, and before it Text-01 and M1, with
// lightning attention in most layers. All rotate a part of each head.
//
// Blocks of Text-01 give alpha n(x) + beta f(n(x)), the norm n before f included. That is post(x +
// beta / alpha f(x)) with the norm of the block behind: here the norm before the first block is one
// of the embedding, and the last one of the model is the last block's. Norms of x / alpha need an
// eps over alpha squared.

#include <cmath>
#include <cstdio>

#include "formats/import/failure.h"
#include "kernels/mixers/lightning.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/mamba.h"
#include "src/convert/mixer.h"

namespace moe::arch::minimax {
namespace {

constexpr TensorName kSelectionBias[] = {
    {"moe.router.selection_bias", "block_sparse_moe.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.gate.exp_probs_b.bias"}};  // GGUF's

// The rotated part of each head: its width, which may also be given as a fraction.
void read_rotated_part(Decoder* d) {
  const int32_t head_dim = d->layer(0).attention.head_dim;
  const int32_t by_factor = d->layer(0).attention.rope.dims;
  const int32_t dims = d->keys.integer("rotary_dim", by_factor, 2, head_dim);
  if (by_factor != head_dim && by_factor != dims) {
    fail_value(d->keys.node("rotary_dim"),
               "partial_rotary_factor rotates " + std::to_string(by_factor));
  }
  for (LayerConfig& layer : d->layers()) layer.attention.rope.dims = dims;
}

constexpr const char* kRates = "the rates of lightning attention";  // in no file

constexpr TensorName kText01[] = {
    {"embedding_norm.weight", "model.layers.0.input_layernorm.weight"},
    {"attention_post_norm.weight", "post_attention_layernorm.weight"},
    {"mixer_post_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_post_norm.weight", "input_layernorm.weight"},  // of the layer behind
    {"lightning.q.weight", "self_attn.qkv_proj.weight"},
    {"lightning.k.weight", "self_attn.qkv_proj.weight"},
    {"lightning.v.weight", "self_attn.qkv_proj.weight"},
    {"lightning.z.weight", "self_attn.output_gate.weight"},
    {"lightning.a_log", kRates},
    {"lightning.norm.weight", "self_attn.norm.weight"},
    {"lightning.out.weight", "self_attn.out_proj.weight"},
    {"lightning.out.weight", "self_attn.o_proj.weight"}};  // GGUF's

// A key of `transformers` and of published files.
struct Key {
  const char* saved;
  const char* published;
};
constexpr Key kAlphas[] = {{"full_attn_alpha_factor", "layernorm_full_attention_alpha"},
                           {"linear_attn_alpha_factor", "layernorm_linear_attention_alpha"},
                           {"mlp_alpha_factor", "layernorm_mlp_alpha"}};
constexpr Key kBetas[] = {{"full_attn_beta_factor", "layernorm_full_attention_beta"},
                          {"linear_attn_beta_factor", "layernorm_linear_attention_beta"},
                          {"mlp_beta_factor", "layernorm_mlp_beta"}};

// The factor of all blocks: a model file has one. `said`: a key that gives it, or nothing.
float read_factor(ConfigKeys* keys, std::span<const Key> names, const char** said) {
  *said = nullptr;
  float factor = 1;
  for (const Key& name : names) {
    const char* const key = keys->either(name.published, name.saved);
    const float value = keys->number(key, 1);
    if (!(value > 0 && value <= 1e4f)) {
      keys->node(key).fail_expected("a number above 0 and at most 10000");
    }
    if (*said != nullptr && value != factor) {
      fail_value(keys->node(key), "only that of " + std::string(*said) + ", for all blocks, is");
    }
    *said = key;
    factor = value;
  }
  return factor;
}

// Sums that are smaller by alpha.
void set_factors(Decoder* d) {
  const char *alpha_key, *beta_key;
  const float alpha = read_factor(&d->keys, kAlphas, &alpha_key);
  const float beta = read_factor(&d->keys, kBetas, &beta_key);
  ModelConfig& c = d->config();
  const float eps = c.norm_eps;
  c.norm_eps /= alpha * alpha;
  if (!(c.norm_eps > 0 && c.norm_eps <= 1)) {
    char least[32];
    std::snprintf(least, sizeof(least), "%g", static_cast<double>(eps));
    fail_value(d->keys.node(alpha_key), "one whose square is above rms_norm_eps, " +
                                            std::string(least) + ", and not endlessly large, is");
  }
  c.embedding_multiplier = 1 / alpha;
  c.residual_multiplier = beta / alpha;
}

// Layers with attention.
std::vector<bool> attention_layers(Decoder* d) {
  const size_t n = d->layers().size();
  const std::vector<JsonNode> published = d->keys.list("attn_type_list", n),
                              saved = d->keys.list("layer_types", n);
  std::vector<bool> attend;
  for (size_t l = 0; l < n; ++l) {
    attend.push_back(l % 2 == 0);
    if (!saved.empty()) attend[l] = saved[l].choice({"linear_attention", "full_attention"}) == 1;
    if (published.empty()) continue;
    const bool said = published[l].integer(0, 1) == 1;
    if (!saved.empty() && said != attend[l]) fail_different(published[l], saved[l]);
    attend[l] = said;
  }
  return attend;
}

std::string rates_of(int32_t layer) { return kRates + (" in layer " + std::to_string(layer)); }

// ALiBi's slopes, which are less in later layers.
std::vector<double> slopes(int32_t n_heads, int32_t layer, int32_t n_layers) {
  const double less = 1 - layer / (n_layers - 1 + 1e-5) + 1e-5;
  std::vector<double> out;
  for (int32_t h = 1; h <= n_heads; ++h) out.push_back(std::exp2(-8.0 * h / n_heads) * less);
  return out;
}

DerivedTensor derive_rates(int32_t n_heads, int32_t layer, int32_t n_layers) {
  DerivedTensor out{rates_of(layer), {n_heads}, {}};
  for (const double slope : slopes(n_heads, layer, n_layers)) {
    out.values.push_back(static_cast<float>(std::log(slope)));
  }
  return out;
}

/// A tensor that files of `transformers` may have beside the weights, (heads, rows, cols) after
/// axes of 1: rates, or what is kept of a state after some steps.
struct Decay {
  const char* name;
  std::vector<int64_t> shape;
  int64_t (*steps)(int64_t row, int64_t col, int64_t block);  // null: rates; below 0: keeps nothing
};

// The largest relative error of rounding to the type.
double rounding(SourceType type) {
  if (type == SourceType::kBf16) return 0x1p-8;
  return type == SourceType::kF16 ? 0x1p-11 : 0x1p-24;
}

// One head's numbers. `transformers` raises a rounded number to the power of the head's, perhaps in
// the file's type.
void check_head(const Decay& decay, const SourceTensor& tensor, int32_t head, double rate,
                std::span<const float> found) {
  const int64_t block = decay.shape[decay.shape.size() - 2], cols = decay.shape.back();
  const double error = rounding(tensor.type) * (head + 5);
  const double least = tensor.type == SourceType::kF16 ? 0x1p-25 : 0;  // of numbers near 0
  std::vector<double> kept;
  for (int64_t n = 0; n <= block; ++n) kept.push_back(std::exp(-rate * static_cast<double>(n)));
  for (size_t i = 0; i < found.size(); ++i) {
    double expected = rate, most = error * rate + least;
    if (decay.steps != nullptr) {
      const auto at = static_cast<int64_t>(i);
      const int64_t n = decay.steps(at / cols, at % cols, block);
      expected = n < 0 ? 0 : kept[static_cast<size_t>(n)];
      most = error;
    }
    const auto x = static_cast<double>(found[i]);
    if (std::fabs(x - expected) <= most) continue;
    fail(MOE_ERR_UNSUPPORTED,
         "tensor %.200s: element %zu of head %d: expected %g, file has %g; only the decays that "
         "follow from the numbers of heads and layers are supported",
         tensor.name.c_str(), i, head, expected, x);
  }
}

// `transformers` takes these from the file, while a model file has what follows from the
// configuration.
void check_decays(const Checkpoint& checkpoint, int32_t n_heads, int32_t layer, int32_t n_layers,
                  int32_t block) {
  const std::vector<double> rates = slopes(n_heads, layer, n_layers);
  const Decay decays[] = {
      {"slope_rate", {n_heads, 1, 1}, nullptr},
      {"query_decay", {n_heads, block, 1}, [](int64_t r, int64_t, int64_t) { return r + 1; }},
      {"key_decay", {n_heads, block, 1}, [](int64_t r, int64_t, int64_t n) { return n - 1 - r; }},
      {"diagonal_decay", {1, n_heads, block, block}, [](int64_t r, int64_t c, int64_t) {
         return r - c;
       }}};
  for (const Decay& decay : decays) {
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn." + decay.name;
    const SourceTensor* const tensor = checkpoint.find(name);
    if (tensor == nullptr) continue;
    if (tensor->shape != decay.shape) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected %s, file has %s", name.c_str(),
           shape_text(decay.shape).c_str(), shape_text(tensor->shape).c_str());
    }
    std::vector<float> found(static_cast<size_t>(tensor->n_elements) / rates.size());
    for (int32_t h = 0; h < n_heads; ++h) {
      const auto head = static_cast<size_t>(h);
      checkpoint.read(*tensor, head * found.size(), found.size(), found.data());
      check_head(decay, *tensor, h, rates[head], found);
    }
  }
}

// qkv_proj has, for each head, the rows of q, k and v.
Source place_text_01(const SlotGroup& group, const Slot& slot, int32_t head_dim, int32_t n_layers,
                     Source source) {
  if (group.part == Part::kFfn && slot.role == Role::kPostNorm) {
    source.tensor =
        group.layer + 1 == n_layers
            ? "model.norm.weight"
            : "model.layers." + std::to_string(group.layer + 1) + ".input_layernorm.weight";
  }
  if (group.part != Part::kMixer || slot.role < Role::kFirstMixer) return source;
  const int weight =
      static_cast<int>(slot.role) - static_cast<int>(mixer_role(built_mixer("lightning").kind, 0));
  if (weight == LightningMixer::kALog) source.tensor = rates_of(group.layer);
  if (weight > LightningMixer::kV) return source;
  const int64_t part = int64_t{head_dim} * slot.cols;
  source.shape = {int64_t{3} * slot.rows, slot.cols};
  source.row_groups.pieces = {{head_dim, weight * part}};
  source.row_groups.stride = 3 * part;
  return source;
}

MixerConfig read_lightning(Decoder* d, int32_t n_heads, int32_t head_dim) {
  MixerConfig rule = built_mixer("lightning");
  rule.params[LightningMixer::kHeads] = static_cast<float>(n_heads);
  rule.params[LightningMixer::kHeadDim] = static_cast<float>(head_dim);
  const Status status = validate_mixer(rule);
  if (!status.ok()) fail(status.code(), "config.json: %s", status.text());
  d->keys.require("hidden_act", "silu");  // of q, k and v
  return rule;
}

// The layers' kinds, and norms behind their blocks.
void arrange_blocks(Decoder* d, const MixerConfig& rule) {
  const BlockNorms behind = {.pre = false, .post = true};
  const std::vector<bool> attends = attention_layers(d);
  const int32_t window = d->sliding_window(0);
  for (size_t l = 0; l < attends.size(); ++l) {
    LayerConfig& layer = d->layer(l);
    layer.ffn.norms = layer.attention.norms = behind;
    layer.attention.window = window;
    if (attends[l]) continue;
    replace_attention(rule, &layer);
    layer.mixer.norms = behind;
  }
}

Imported import_text_01(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 1000000, 1e-5f);
  const int32_t n_heads = d.layer(0).attention.n_heads, head_dim = d.layer(0).attention.head_dim;
  const int32_t n_layers = d.config().n_layers();
  read_rotated_part(&d);
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRenormalised);
  d.names(sparse_moe_names());
  d.names(kText01);
  d.keys.require("shared_intermediate_size", 0);
  d.keys.require("postnorm", true);
  d.keys.ignore({"router_jitter_noise", "shared_moe_mode"});
  const int32_t block = d.keys.integer("block_size", 256, 1, 1 << 12);
  arrange_blocks(&d, read_lightning(&d, n_heads, head_dim));
  set_factors(&d);
  d.config().embedding_norm = true;
  d.config().final_norm = false;
  for (const char* buffer : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
    d.ignore_tensors((std::string("*.self_attn.") + buffer).c_str());
  }
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  for (int32_t l = 0; l < n_layers; ++l) {
    if (!out.config.layers[static_cast<size_t>(l)].has_mixer) continue;
    check_decays(checkpoint, n_heads, l, n_layers, block);
    out.derived.push_back(derive_rates(n_heads, l, n_layers));
  }
  out.locate = [locate = std::move(out.locate), head_dim, n_layers](const SlotGroup& group,
                                                                    const Slot& slot) {
    return place_text_01(group, slot, head_dim, n_layers, locate(group, slot));
  };
  return out;
}

Imported import_minimax_m2(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 5000000);
  (void)d.keys.node("head_dim");  // not hidden_size / num_attention_heads if it is missing
  d.qk_norm(QkNorm::kWhole);
  d.keys.require("use_qk_norm", true);
  d.keys.require("qk_norm_type", "per_layer");
  read_rotated_part(&d);
  for (const JsonNode& type : d.keys.list("attn_type_list", d.layers().size())) {
    if (type.value() != 1) fail_value(type, "only 1, full attention, is");
  }
  d.experts("num_local_experts", "num_experts", d.layer(0).ffn.d_ff, RouterWeights::kRenormalised);
  d.keys.require("scoring_func", "sigmoid");
  d.keys.require("use_routing_bias", true);
  d.keys.require("shared_intermediate_size", 0);
  for (LayerConfig& layer : d.layers()) layer.ffn.moe.router.kind = RouterKind::kSigmoid;
  d.names(sparse_moe_names());
  d.names(kSelectionBias);
  d.keys.ignore({"router_jitter_noise", "shared_moe_mode"});  // training, and no shared expert
  d.keys.ignore({"use_mtp", "num_mtp_modules", "mtp_transformer_layers"});  // not in the files
  d.quantization(Quantization::kNone);
  return d.finish();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"minimax_m2", import_minimax_m2},
                                       {"minimax", import_text_01},
                                       {"minimax_text_01", import_text_01},
                                       {"minimax_m1", import_text_01}};
  return kRows;
}

}  // namespace moe::arch::minimax
