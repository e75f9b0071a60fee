// SPDX-License-Identifier: MIT
// Checks every field of a configuration, whether it comes from a model file or from an importer.
#include "src/model/config.h"

#include "kernels/rope.h"
#include "kernels/router/table.h"
#include "src/base/inline.h"

namespace moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;      // d_model, d_ff, heads * head_dim
constexpr int32_t kMaxMixerRows = 1 << 24;  // of a file's matrices
constexpr int32_t kMaxVocab = 1 << 24;
constexpr int32_t kMaxContext = 1 << 24;
constexpr int32_t kMaxExperts = 1 << 16;
constexpr int32_t kMaxHeadDim = 1024;
constexpr int32_t kMaxSublayers = 64;
constexpr int32_t kMaxRotation = 1 << 16;
constexpr float kMaxCap = 1000;  // beyond it the GPU's soft cap loses precision

Status check_int(const char* field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return {};
  return Status::error(MOE_ERR_RANGE, "%s: expected %d..%d, found %d", field, low, high, value);
}

Status check_positive(const char* field, float value) {
  if (is_finite(value) && value > 0) return {};
  return Status::error(MOE_ERR_RANGE, "%s: expected a finite number above 0, found %g", field,
                       static_cast<double>(value));
}

// A larger eps would dominate the norm.
Status check_eps(const char* field, float eps) {
  MOE_TRY(check_positive(field, eps));
  if (eps <= 1) return {};
  return Status::error(MOE_ERR_RANGE, "%s: expected at most 1, found %g", field,
                       static_cast<double>(eps));
}

Status check_finite(const char* field, float value) {
  if (is_finite(value)) return {};
  return Status::error(MOE_ERR_RANGE, "%s: expected a finite number, found %g", field,
                       static_cast<double>(value));
}

Status check_cap(const char* field, float value) {
  if (value >= 0 && value <= kMaxCap) return {};
  return Status::error(MOE_ERR_RANGE, "%s: expected 0..%g, found %g", field,
                       static_cast<double>(kMaxCap), static_cast<double>(value));
}

Status check_token(const char* field, int32_t token, int32_t vocab_size) {
  if (token >= -1 && token < vocab_size) return {};
  return Status::error(MOE_ERR_RANGE, "%s: expected below vocab_size %d, found %d", field,
                       vocab_size, token);
}

Status validate_heads(const AttentionConfig& a) {
  MOE_TRY(check_int("attention.head_dim", a.head_dim, 1, kMaxHeadDim));
  MOE_TRY(check_int("attention.n_heads", a.n_heads, 1, kMaxWidth / a.head_dim));
  MOE_TRY(check_int("attention.n_kv_heads", a.n_kv_heads, 1, a.n_heads));
  if (a.n_heads % a.n_kv_heads != 0) {
    return Status::error(MOE_ERR_SHAPE, "attention.n_kv_heads: %d does not divide n_heads %d",
                         a.n_kv_heads, a.n_heads);
  }
  MOE_TRY(check_finite("attention.multiplier", a.multiplier));
  return a.multiplier < 0 ? check_positive("attention.multiplier", a.multiplier) : Status();
}

Status validate_cross(const LayerConfig& layer, bool in_decoder) {
  const AttentionConfig& a = layer.cross;
  if (!layer.has_cross) {
    if (a.n_heads == 0 && a.n_kv_heads == 0) return {};
    return Status::error(MOE_ERR_ARGUMENT, "cross_attention is absent, but configured");
  }
  if (!in_decoder) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "cross_attention: only for decoder layers of an encoder-decoder");
  }
  MOE_TRY(validate_heads(a).with_context("cross"));
  const bool plain = a.window == 0 && a.latent == 0 && a.q_latent == 0 && a.latent_eps == 0 &&
                     a.rope.kind == RopeKind::kNone && a.qk_norm == QkNorm::kNone && !a.sinks &&
                     !a.sub_norm && !a.in_norms && !a.causal && a.score_cap == 0 &&
                     a.qkv_clip == 0 && !a.output_gate && !a.gate_by_head && !a.v_norm &&
                     !a.v_from_k && !a.shares_kv();
  if (plain) return {};
  return Status::error(
      MOE_ERR_ARGUMENT,
      "cross_attention: causal, window, rope, latent, qk_norm, sub_norm, in_norms, sinks, "
      "score_cap, qkv_clip, output_gate, gate_by_head, v_norm, v_from_k and "
      "kv_layer are for attention only");
}

Status validate_attention(const AttentionConfig& a, const ModelConfig& model, bool causal) {
  MOE_TRY(validate_heads(a));
  MOE_TRY(check_int("attention.latent", a.latent, 0, kMaxWidth));
  if (a.latent > 0 && a.rope.kind == RopeKind::kNone && a.rope.dims == 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "attention.latent is set, but rope.dims, what all keys share, is not");
  }
  MOE_TRY(check_int("attention.q_latent", a.q_latent, 0, a.latent > 0 ? kMaxWidth : 0));
  if (a.latent_eps != 0) MOE_TRY(check_eps("attention.latent_eps", a.latent_eps));
  if (a.latent_eps != 0 && a.latent == 0) {
    return Status::error(MOE_ERR_ARGUMENT, "attention.latent_eps is set, but there is no latent");
  }
  MOE_TRY(check_int("attention.window", a.window, 0, kMaxContext));
  if (a.causal != causal) {
    return Status::error(MOE_ERR_ARGUMENT, "attention.causal: %s",
                         a.causal ? "expected false in an encoder, found true"
                                  : "expected true in a decoder, found false");
  }
  if (!a.causal && a.window > 0 && a.window % 2 == 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "attention.window: expected an odd number in an encoder, found %d; it is "
                         "as wide on both sides of a position",
                         a.window);
  }
  if (a.gate_by_head && !a.output_gate) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "attention.gate_by_head is set, but there is no output_gate");
  }
  if ((a.v_norm || a.v_from_k) && (a.latent > 0 || a.shares_kv())) {
    return Status::error(MOE_ERR_ARGUMENT, "attention.%s: there are no values of its own, but %s",
                         a.v_norm ? "v_norm" : "v_from_k",
                         a.latent > 0 ? "a latent" : "those of kv_layer");
  }
  if (a.in_norms && (a.latent > 0 || a.shares_kv() || a.v_from_k || a.output_gate)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "attention.in_norms: needs matrices for q, k and v, and no latent or "
                         "output_gate");
  }
  MOE_TRY(check_cap("attention.score_cap", a.score_cap));
  if (a.qkv_clip != 0) MOE_TRY(check_positive("attention.qkv_clip", a.qkv_clip));
  if (a.rope.kind == RopeKind::kNone) {
    if (a.latent == 0) return {};
    return check_int("attention.rope.dims", a.rope.dims, 1, a.head_dim);  // shared by all keys
  }
  if (model.positions != PositionKind::kRope) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "attention.rope is set, but the model's positions are not rope");
  }
  MOE_TRY(check_int("attention.rope.dims", a.rope.dims, 2, a.head_dim));
  return validate_rope(a.rope).with_context("attention");
}

// The layer that has the keys and values of layer `index`.
Status validate_kv_layer(const ModelConfig& model, int32_t index) {
  const AttentionConfig& a = model.layers[static_cast<size_t>(index)].attention;
  MOE_TRY(check_int("attention.kv_layer", a.kv_layer, -1, index - 1));
  if (!a.shares_kv()) return {};
  const LayerConfig& source = model.layers[static_cast<size_t>(a.kv_layer)];
  const char* wrong = nullptr;
  if (a.n_kv_heads != source.attention.n_kv_heads || a.head_dim != source.attention.head_dim) {
    wrong = "that layer's n_kv_heads or head_dim are others";
  }
  if (!a.causal || model.is_encoder_decoder()) wrong = "only a decoder's layer can see another's";
  if (!source.has_attention) wrong = "that layer has no attention";
  if (source.attention.shares_kv()) wrong = "that layer has no keys of its own";
  if (a.latent > 0 || source.attention.latent > 0) wrong = "a layer with a latent cannot share it";
  if (wrong == nullptr) return {};
  return Status::error(MOE_ERR_ARGUMENT, "attention.kv_layer: %d: %s", a.kv_layer, wrong);
}

Status validate_mixer_block(const LayerConfig& layer, bool encodes, const ModelConfig& model) {
  if (!layer.has_mixer) return {};
  const char* const name = mixer_info(layer.mixer.mixer).name;
  if (layer.has_attention && (layer.mixer.norms.post || layer.attention.norms.post)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "%s: a norm after the sum needs a layer of its own, without attention",
                         name);
  }
  if (encodes || model.is_encoder_decoder()) {
    return Status::error(MOE_ERR_ARGUMENT, "%s: only for decoders without an encoder", name);
  }
  const MixerConfig& mixer = layer.mixer.mixer;
  MOE_TRY(validate_mixer(mixer));
  const MixerInfo& info = mixer_info(mixer);
  for (int i = 0; i < info.n_weights(); ++i) {
    const int64_t n = info.weights[i].n(mixer, model.d_model);
    if (n <= kMaxMixerRows) continue;
    return Status::error(MOE_ERR_RANGE, "%s: expected at most %d rows, found %lld",
                         info.weights[i].name, kMaxMixerRows, static_cast<long long>(n));
  }
  return {};
}

Status validate_activation(const FfnConfig& ffn) {
  const ActivationConfig& act = ffn.act;
  MOE_TRY(check_finite("ffn.alpha", act.alpha));
  MOE_TRY(check_finite("ffn.limit", act.limit));
  MOE_TRY(check_finite("ffn.up_offset", act.up_offset));
  if (act.limit < 0) return check_positive("ffn.limit", act.limit);
  if (act.kind != Activation::kSilu && act.alpha != 1) {
    return Status::error(MOE_ERR_ARGUMENT, "ffn.alpha: only silu has one, found %g",
                         static_cast<double>(act.alpha));
  }
  if (!ffn.gated && (act.limit != 0 || act.up_offset != 0)) {
    return Status::error(MOE_ERR_ARGUMENT, "ffn.limit and ffn.up_offset need a gated FFN");
  }
  return {};
}

Status validate_moe(const MoeConfig& moe, const FfnConfig& ffn, const ModelConfig& model) {
  MOE_TRY(check_int("moe.n_experts", moe.n_experts, 1, kMaxExperts));
  MOE_TRY(check_int("moe.n_subheads", moe.n_subheads, 1, model.d_model));
  if (model.d_model % moe.n_subheads != 0) {
    return Status::error(MOE_ERR_SHAPE, "moe.n_subheads: %d does not divide d_model %d",
                         moe.n_subheads, model.d_model);
  }
  MOE_TRY(check_int("moe.n_sublayers", moe.n_sublayers, 0, kMaxSublayers));
  if (moe.n_sublayers > 0 && ffn.sub_norm) {
    return Status::error(MOE_ERR_ARGUMENT, "moe.n_sublayers and ffn.sub_norm exclude each other");
  }
  MOE_TRY(check_int("moe.shared.d_ff", moe.shared.d_ff, 0, kMaxWidth));
  if (moe.shared.gated && moe.shared.d_ff == 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "moe.shared.gated is set, but there is no shared expert");
  }
  MOE_TRY(validate_router(moe.router, moe.n_experts).with_context("moe"));
  const bool split = moe.n_subheads > 1 || moe.head || moe.merge;
  if (moe.apart && (moe.shared.d_ff == 0 || moe.shared.gated || split || !ffn.norms.out)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "moe.apart: needs a shared expert without a gate, out_norm, and no "
                         "sub-heads");
  }
  if (moe.router_norm && (split || router_info(moe.router).scores == RouterScores::kTable)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "moe.router_norm: needs a router with scores, and no sub-heads");
  }
  return {};
}

Status validate_layer(const ModelConfig& model, int32_t index, bool encoder) {
  const LayerConfig& layer = model.layers[static_cast<size_t>(index)];
  const FfnConfig& ffn = layer.ffn;
  const AttentionConfig& a = layer.attention;
  const bool encodes = encoder || index < model.n_encoder_layers;
  if (!layer.has_attention && !layer.has_ffn && !layer.has_cross && !layer.has_mixer) {
    return Status::error(MOE_ERR_ARGUMENT, "there is neither attention nor ffn");
  }
  if constexpr (kHasMixers) MOE_TRY(validate_mixer_block(layer, encodes, model));
  MOE_TRY(validate_cross(layer, model.is_encoder_decoder() && !encodes));
  MOE_TRY(check_finite("multiplier", layer.multiplier));
  if (layer.has_attention) {
    MOE_TRY(validate_attention(a, model, !encodes));
    MOE_TRY(validate_kv_layer(model, index));
  } else if (a.n_heads != 0 || a.n_kv_heads != 0 || a.latent != 0 || a.q_latent != 0 ||
             a.latent_eps != 0 || a.rope.kind != RopeKind::kNone || a.shares_kv()) {
    return Status::error(MOE_ERR_ARGUMENT, "attention is absent, but configured");
  }
  if (!layer.has_ffn) {
    if (ffn.d_ff == 0 && ffn.kind == FfnKind::kDense) return {};
    return Status::error(MOE_ERR_ARGUMENT, "ffn is absent, but configured");
  }
  MOE_TRY(check_int("ffn.d_ff", ffn.d_ff, 1, kMaxWidth));
  MOE_TRY(validate_activation(ffn));
  if (ffn.in_norms && ffn.kind == FfnKind::kMoe) {
    return Status::error(MOE_ERR_ARGUMENT, "ffn.in_norms: only a dense FFN has them");
  }
  if (ffn.kind == FfnKind::kMoe) MOE_TRY(validate_moe(ffn.moe, ffn, model));
  return {};
}

Status validate_head(const ModelConfig& config) {
  const HeadConfig& head = config.head;
  const bool tokens = head.kind == HeadKind::kTokens;
  const bool span = head.kind == HeadKind::kSpan;
  const bool labels = !tokens && head.kind != HeadKind::kNone;
  if (labels) {
    MOE_TRY(check_int("head.n_labels", head.n_labels, span ? 2 : 1, span ? 2 : kMaxWidth));
  } else {
    MOE_TRY(check_int("head.n_labels", head.n_labels, 0, 0));
  }
  if (head.pooling == Pooling::kLast ||
      (head.pooling == Pooling::kMean && head.kind != HeadKind::kClasses)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "head.pooling: expected first, or mean of a head of classes");
  }
  if (config.second_positions &&
      (!config.is_encoder() || config.positions != PositionKind::kLearned)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "second_positions: only an encoder with learned positions has them");
  }
  if (!tokens && (config.tie_embeddings || !config.is_encoder())) {
    return Status::error(MOE_ERR_ARGUMENT, "head.kind: %s need a token head",
                         config.tie_embeddings ? "tied embeddings" : "decoders");
  }
  if (head.tied_bias && (!config.tie_embeddings || head.dense)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "head.tied_bias: the head's matrix is not the embedding alone");
  }
  if (head.dense ? head.kind != HeadKind::kNone : !head.norm) return {};
  return Status::error(MOE_ERR_ARGUMENT, "head: %s",
                       head.dense ? "there is no output for its dense layer"
                                  : "its norm needs a dense layer before it");
}

Status validate_text_vector(const ModelConfig& config) {
  const TextVectorConfig& v = config.text_vector;
  if (!v.known) return {};
  if (config.is_encoder_decoder()) {
    return Status::error(MOE_ERR_ARGUMENT, "text_vector: not of an encoder-decoder");
  }
  MOE_TRY(check_int("text_vector.max_tokens", v.max_tokens, 0, config.context_length));
  const auto n = static_cast<int32_t>(v.prompts.size());
  return check_int("text_vector.default_prompt", v.default_prompt, -1, n - 1);
}

Status validate_layer_input(const ModelConfig& config) {
  const LayerInputConfig& in = config.layer_input;
  MOE_TRY(check_int("layer_input.width", in.width, 0, kMaxWidth / config.n_layers()));
  MOE_TRY(check_finite("layer_input.multiplier", in.multiplier));
  MOE_TRY(check_finite("layer_input.projection_multiplier", in.projection_multiplier));
  if (in.projection_eps != 0) MOE_TRY(check_eps("layer_input.projection_eps", in.projection_eps));
  if (in.width == 0 || !(config.is_encoder() || config.is_encoder_decoder())) return {};
  return Status::error(MOE_ERR_ARGUMENT, "layer_input: only for decoders without an encoder");
}

Status validate_rotation(const RotationConfig& r) {
  if (r.block == 0) {
    if (r.signs.empty()) return {};
    return Status::error(MOE_ERR_ARGUMENT, "rotation: there are signs, but no block");
  }
  MOE_TRY(check_int("rotation.block", r.block, 2, kMaxRotation));
  if ((r.block & (r.block - 1)) != 0) {
    return Status::error(MOE_ERR_RANGE, "rotation.block: expected a power of two, found %d",
                         r.block);
  }
  int32_t last = 0;
  int64_t sum = 0;  // is held in memory, whatever the file's bytes are
  for (const RotationSigns& s : r.signs) {
    MOE_TRY(check_int("rotation.signs: width", s.width, last + 1, kMaxWidth));
    sum += s.width;
    if (sum > kMaxWidth) {
      return Status::error(MOE_ERR_RANGE, "rotation.signs: the widths add up to more than %d",
                           kMaxWidth);
    }
    if (s.width % r.block != 0) {
      return Status::error(MOE_ERR_SHAPE,
                           "rotation.signs: blocks of %d do not divide a width of %d", r.block,
                           s.width);
    }
    last = s.width;
  }
  return {};
}

Status validate_encoder_decoder(const ModelConfig& config) {
  MOE_TRY(check_int("n_encoder_layers", config.n_encoder_layers, 0, config.n_layers() - 1));
  if (!config.is_encoder_decoder()) {
    const bool unset = config.source_length == 0 && !config.encoder_norm &&
                       config.start_token_id == -1 && config.forced_token_id == -1;
    if (unset) return {};
    return Status::error(MOE_ERR_ARGUMENT,
                         "source_length, encoder_norm, start_token_id and forced_token_id need "
                         "n_encoder_layers");
  }
  MOE_TRY(check_int("source_length", config.source_length, 1, kMaxContext));
  MOE_TRY(check_int("start_token_id", config.start_token_id, 0, config.vocab_size - 1));
  MOE_TRY(check_token("forced_token_id", config.forced_token_id, config.vocab_size));
  if (config.eos_token_ids.empty()) {
    return Status::error(MOE_ERR_ARGUMENT, "eos_token_ids: an encoder-decoder needs one");
  }
  if (config.positions != PositionKind::kRope) return {};
  return Status::error(MOE_ERR_ARGUMENT,
                       "positions: those of an encoder-decoder are learned or none, found rope");
}

// A layer that guesses is one of a decoder's, without a state and with keys of its own.
Status validate_predictions(const ModelConfig& config) {
  MOE_TRY(check_int("n_predictions", config.n_predictions, 0, 1));
  if (config.n_predictions == 0) {
    if (!config.raw_predictions) return {};
    return Status::error(MOE_ERR_ARGUMENT, "raw_predictions needs n_predictions");
  }
  const char* wrong = nullptr;
  if (config.n_main_layers() < 1) wrong = "there is no other layer";
  if (config.is_encoder() || config.is_encoder_decoder()) wrong = "only decoders have them";
  if (config.norm != NormKind::kRms) wrong = "the model's norm must be rms";
  if (config.layer_input.width > 0) wrong = "not together with layer_input";
  const LayerConfig& layer = config.layers[config.layers.size() - 1];
  if (!layer.has_attention || layer.has_mixer || layer.attention.shares_kv()) {
    wrong = "the last layer needs attention with keys of its own, and no mixer";
  }
  if (wrong == nullptr) return {};
  return Status::error(MOE_ERR_ARGUMENT, "n_predictions: %d, but %s", config.n_predictions, wrong);
}

Status sampling_error(const char* field, const char* expected, float found) {
  return Status::error(MOE_ERR_RANGE, "sampling: %s: expected %s, found %g", field, expected,
                       static_cast<double>(found));
}

// Those of SamplingConfig, so that nothing is stored that could not be sampled with.
Status validate_sampling(const SamplingAdvice& s) {
  if (!(s.temperature <= 1e6f)) return sampling_error("temperature", "0..1e6", s.temperature);
#define MOE_SAMPLING_FILTER(name, off, range, text) \
  if (const float x = s.name; !(range)) {           \
    return sampling_error(#name, text, x);          \
  }
#include "src/model/sampling_list.h"
  if (!(s.repetition_penalty >= 0.01f && s.repetition_penalty <= 100)) {
    return sampling_error("repetition_penalty", "0.01..100", s.repetition_penalty);
  }
  MOE_TRY(check_int("sampling: top_k", s.top_k, 0, INT32_MAX));
  return check_int("sampling: repetition_window", s.repetition_window, 0, INT32_MAX);
}

}  // namespace

const char* extra_of(const LayerConfig& layer) {
  if (layer.multiplier != 1) return "multiplies its result";
  if (layer.attention.shares_kv()) return "sees the keys of another layer";
  if (layer.attention.v_norm) return "has a norm for its values";
  if (layer.attention.in_norms || layer.ffn.in_norms) {
    return "has norms for the inputs of single matrices";
  }
  if (layer.ffn.moe.apart) return "has experts apart from their shared one";
  if (layer.ffn.moe.router_norm) return "has a norm for its router";
  return layer.ffn.moe.expert_scale ? "multiplies the outputs of its experts" : nullptr;
}

Status validate(const ModelConfig& config) {
  MOE_TRY(check_int("vocab_size", config.vocab_size, 1, kMaxVocab));
  MOE_TRY(check_int("d_model", config.d_model, 1, kMaxWidth));
  MOE_TRY(check_int("context_length", config.context_length, 1, kMaxContext));
  if (config.layers.empty() || config.layers.size() > static_cast<size_t>(kMaxLayers)) {
    return Status::error(MOE_ERR_RANGE, "n_layers: expected 1..%d, found %zu", kMaxLayers,
                         config.layers.size());
  }
  if (config.norm == NormKind::kNone) {
    return Status::error(MOE_ERR_ARGUMENT, "norm: expected rms or layer, found none");
  }
  MOE_TRY(check_eps("norm.eps", config.norm_eps));
  MOE_TRY(check_finite("embedding_multiplier", config.embedding_multiplier));
  MOE_TRY(check_finite("residual_multiplier", config.residual_multiplier));
  MOE_TRY(check_finite("logit_multiplier", config.logit_multiplier));
  MOE_TRY(check_cap("logit_cap", config.logit_cap));
  MOE_TRY(check_token("bos_token_id", config.bos_token_id, config.vocab_size));
  MOE_TRY(check_token("pad_token_id", config.pad_token_id, config.vocab_size));
  MOE_TRY(check_token("mask_token_id", config.mask_token_id, config.vocab_size));
  MOE_TRY(validate_encoder_decoder(config));
  MOE_TRY(validate_layer_input(config));
  MOE_TRY(validate_rotation(config.rotation));
  MOE_TRY(validate_predictions(config));
  MOE_TRY(validate_head(config));
  MOE_TRY(validate_text_vector(config));
  if (config.add_bos && config.bos_token_id < 0) {
    return Status::error(MOE_ERR_ARGUMENT, "add_bos is set, but there is no bos_token_id");
  }
  for (const int32_t id : config.eos_token_ids) {
    MOE_TRY(check_int("eos_token_id", id, 0, config.vocab_size - 1));
  }
  const bool encoder = config.is_encoder();
  for (int32_t i = 0; i < config.n_layers(); ++i) {
    MOE_TRY(validate_layer(config, i, encoder).with_context("layer %d", i));
  }
  return validate_sampling(config.sampling);
}

}  // namespace moe
