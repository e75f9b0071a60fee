// SPDX-License-Identifier: MIT
// Copies the FlatBuffers tables of the metadata into a ModelConfig; an unknown name in them is an
// error.
#include "src/model/config_read.h"

#include "formats/moe/parse.h"
#include "kernels/router/table.h"
#include "src/model/names.h"

namespace moe {
namespace {

Status read_factors(const flatbuffers::Vector<float>* factors, int32_t dims, const float** out) {
  if (factors == nullptr) return {};
  if (static_cast<int64_t>(factors->size()) != dims / 2) {
    return Status::error(MOE_ERR_SHAPE, "rope.scaling: expected %d factors, file has %u", dims / 2,
                         factors->size());
  }
  *out = reinterpret_cast<const float*>(factors->Data());
  return {};
}

Status read_rope(const fbs::Rope& rope, RopeConfig* out) {
  MOE_TRY(parse_name(kRopeKinds, "rope kind", text_of(rope.kind()), &out->kind));
  out->dims = rope.dims();
  out->theta = rope.theta();
  const fbs::RopeScaling* s = rope.scaling();
  if (s == nullptr) return {};
  MOE_TRY(parse_name(kRopeScalings, "rope scaling", text_of(s->kind()), &out->scaling));
  out->factor = s->factor();
  out->low_freq_factor = s->low_freq_factor();
  out->high_freq_factor = s->high_freq_factor();
  out->beta_fast = s->beta_fast();
  out->beta_slow = s->beta_slow();
  out->truncate = s->truncate();
  out->attention_factor = s->attention_factor();
  out->original_context = s->original_context();
  out->turning = s->turning();
  MOE_TRY(read_factors(s->short_factor(), out->dims, &out->short_factor));
  return read_factors(s->long_factor(), out->dims, &out->long_factor);
}

Status read_attention(const fbs::Attention& a, AttentionConfig* out) {
  out->n_heads = a.n_heads();
  out->n_kv_heads = a.n_kv_heads();
  out->head_dim = a.head_dim();
  out->window = a.window();
  out->causal = a.causal();
  out->multiplier = a.multiplier();
  out->sub_norm = a.sub_norm();
  out->sinks = a.sinks();
  out->latent = a.latent();
  out->score_cap = a.score_cap();
  out->q_latent = a.q_latent();
  out->qkv_clip = a.qkv_clip();
  out->latent_eps = a.latent_eps();
  out->output_gate = a.output_gate();
  out->gate_by_head = a.gate_by_head();
  out->v_norm = a.v_norm();
  out->v_from_k = a.v_from_k();
  out->kv_layer = a.kv_layer();
  out->in_norms = a.in_norms();
  out->norms = {a.norm(), a.out_norm(), a.post_norm()};
  MOE_TRY(parse_name(kQkNorms, "QK norm", text_of(a.qk_norm(), "none"), &out->qk_norm));
  return a.rope() == nullptr ? Status() : read_rope(*a.rope(), &out->rope);
}

Status read_router(const fbs::Router& r, RouterConfig* out) {
  const RouterInfo* info = find_router(text_of(r.kind()));
  if (info == nullptr) return unknown_name("router", text_of(r.kind()));
  out->kind = info->kind;
  MOE_TRY(parse_name(kRouterWeights, "router weights", text_of(r.weights(), "raw"), &out->weights));
  MOE_TRY(parse_name(kCosineGates, "router gate", text_of(r.gate(), "softmax"), &out->gate));
  MOE_TRY(
      parse_name(kCapacityOrders, "capacity order", text_of(r.order(), "priority"), &out->order));
  out->k = r.k();
  out->threshold = r.threshold();
  out->min_k = r.min_k();
  out->max_k = r.max_k();
  out->scale = r.scale();
  out->tau = r.tau();
  out->cosine_eps = r.cosine_eps();
  out->normalise_token = r.normalise_token();
  out->topk_norm = r.topk_norm();
  out->jitter = r.jitter();
  out->gamma = r.gamma();
  out->min_capacity = r.min_capacity();
  out->n_groups = r.n_groups();
  out->top_groups = r.top_groups();
  return {};
}

Status read_ffn(const fbs::FeedForward& f, FfnConfig* out) {
  out->d_ff = f.d_ff();
  out->gated = f.gated();
  out->sub_norm = f.sub_norm();
  out->in_norms = f.in_norms();
  out->norms = {f.norm(), f.out_norm(), f.post_norm()};
  const fbs::Activation& act = *f.activation();
  MOE_TRY(parse_name(kActivations, "activation", text_of(act.kind()), &out->act.kind));
  out->act.alpha = act.alpha();
  out->act.limit = act.limit();
  out->act.up_offset = act.up_offset();
  const fbs::Moe* m = f.moe();
  if (m == nullptr) return {};
  out->kind = FfnKind::kMoe;
  out->moe.n_experts = m->n_experts();
  out->moe.n_subheads = m->n_subheads();
  out->moe.head = m->multi_head() || m->head();
  out->moe.merge = m->multi_head() || m->merge();
  out->moe.n_sublayers = m->n_sublayers();
  out->moe.shared.d_ff = m->shared_d_ff();
  out->moe.shared.gated = m->shared_gated();
  out->moe.apart = m->apart();
  out->moe.router_norm = m->router_norm();
  out->moe.expert_scale = m->expert_scale();
  return read_router(*m->router(), &out->moe.router);
}

Status read_mixer(const fbs::Mixer& m, MixerBlock* out) {
  const MixerInfo* info = find_mixer(text_of(m.kind()));
  if (!kHasMixers || info == nullptr) return unknown_name("mixer in this build", text_of(m.kind()));
  out->norms = {m.norm(), m.out_norm(), m.post_norm()};
  out->mixer = default_mixer(*info);
  uint32_t missing = 0;
  for (int i = 0; i < info->n_params(); ++i) missing |= (info->params[i].required ? 1U : 0U) << i;
  for (uint32_t i = 0; m.params() != nullptr && i < m.params()->size(); ++i) {
    const fbs::MixerParam& param = *m.params()->Get(i);
    const int index = find_param(*info, text_of(param.name()));
    if (index < 0) {
      return unknown_name("parameter", text_of(param.name())).with_context("%s", info->name);
    }
    out->mixer.params[index] = param.value();
    missing &= ~(1U << index);
  }
  if (missing == 0) return {};
  return Status::error(MOE_ERR_FORMAT, "%s: the file does not say %s", info->name,
                       info->params[__builtin_ctz(missing)].name);
}

Status read_layer(const fbs::Layer& layer, LayerConfig* out) {
  out->has_attention = layer.attention() != nullptr;
  out->has_ffn = layer.ffn() != nullptr;
  out->has_cross = layer.cross_attention() != nullptr;
  out->has_mixer = layer.mixer() != nullptr;
  out->multiplier = layer.multiplier();
  if (out->has_mixer) MOE_TRY(read_mixer(*layer.mixer(), &out->mixer));
  if (out->has_attention) MOE_TRY(read_attention(*layer.attention(), &out->attention));
  if (out->has_cross) {
    MOE_TRY(read_attention(*layer.cross_attention(), &out->cross).with_context("cross"));
  }
  return out->has_ffn ? read_ffn(*layer.ffn(), &out->ffn) : Status();
}

Status read_head(const fbs::Head& h, HeadConfig* out) {
  out->n_labels = h.n_labels();
  out->dense = h.dense();
  out->norm = h.norm();
  out->tied_bias = h.tied_bias();
  MOE_TRY(parse_name(kPoolings, "pooling", text_of(h.pooling(), "first"), &out->pooling));
  MOE_TRY(parse_name(kHeadKinds, "head", text_of(h.kind()), &out->kind));
  return parse_name(kActivations, "activation", text_of(h.activation(), "gelu"), &out->act);
}

SamplingAdvice read_sampling(const fbs::Sampling& s) {
  return {.given = true,
          .temperature = s.temperature(),
          .top_k = s.top_k(),
#define MOE_SAMPLING_FILTER(name, off, range, text) .name = s.name(),
#include "src/model/sampling_list.h"
          .repetition_penalty = s.repetition_penalty(),
          .repetition_window = s.repetition_window()};
}

Status read_text_vector(const fbs::TextVector& v, TextVectorConfig* out) {
  out->known = true;
  MOE_TRY(parse_name(kPoolings, "pooling", text_of(v.pooling()), &out->pooling));
  out->normalise = v.normalise();
  out->max_tokens = v.max_tokens();
  out->default_prompt = v.default_prompt();
  if (v.prompts() == nullptr) return {};
  if (v.prompts()->size() > kMaxPrompts) {
    return Status::error(MOE_ERR_RANGE, "text_vector: expected at most %u prompts, found %u",
                         kMaxPrompts, v.prompts()->size());
  }
  for (const fbs::Prompt* prompt : *v.prompts()) {
    MOE_TRY(out->prompts.push({prompt->name()->c_str(), prompt->text()->c_str()}));
  }
  return {};
}

Status read_layer_input(const fbs::LayerInput& in, LayerInputConfig* out) {
  out->width = in.width();
  out->multiplier = in.multiplier();
  out->projection_multiplier = in.projection_multiplier();
  out->projection_eps = in.projection_eps();
  return parse_name(kActivations, "activation", text_of(in.activation()), &out->act);
}

Status read_rotation(const fbs::Rotation& r, RotationConfig* out) {
  out->block = r.block();
  if (r.signs() == nullptr) return {};
  for (const fbs::RotationSigns* s : *r.signs()) {
    if (int64_t{s->bits()->size()} != (int64_t{s->width()} + 7) / 8) {
      return Status::error(MOE_ERR_SHAPE, "rotation.signs: expected %d bits, file has %u bytes",
                           s->width(), s->bits()->size());
    }
    MOE_TRY(out->signs.push({s->width(), s->bits()->data()}));
  }
  return {};
}

Status read_layers(const fbs::ModelConfig& config, ModelConfig* out) {
  const auto& layers = *config.layers();
  if (layers.size() > static_cast<uint32_t>(kMaxLayers)) {
    return Status::error(MOE_ERR_RANGE, "n_layers: expected 1..%d, found %u", kMaxLayers,
                         layers.size());
  }
  MOE_TRY(out->layers.reserve(layers.size()));
  for (uint32_t i = 0; i < layers.size(); ++i) {
    LayerConfig layer;
    MOE_TRY(read_layer(*layers.Get(i), &layer).with_context("layer %u", i));
    MOE_TRY(out->layers.push(layer));
  }
  return {};
}

}  // namespace

Status read_config(const fbs::ModelConfig& config, ModelConfig* out) {
  MOE_TRY(out->name.assign(text_of(config.name())));
  out->vocab_size = config.vocab_size();
  out->d_model = config.d_model();
  out->context_length = config.context_length();
  out->norm_eps = config.norm_eps();
  out->tie_embeddings = config.tie_embeddings();
  out->embedding_norm = config.embedding_norm();
  out->second_positions = config.second_positions();
  out->final_norm = config.final_norm();
  out->embedding_multiplier = config.embedding_multiplier();
  out->residual_multiplier = config.residual_multiplier();
  out->logit_multiplier = config.logit_multiplier();
  out->logit_cap = config.logit_cap();
  out->bos_token_id = config.bos_token_id();
  out->pad_token_id = config.pad_token_id();
  out->mask_token_id = config.mask_token_id();
  out->add_bos = config.add_bos();
  out->n_encoder_layers = config.n_encoder_layers();
  out->source_length = config.source_length();
  out->encoder_norm = config.encoder_norm();
  out->start_token_id = config.start_token_id();
  out->forced_token_id = config.forced_token_id();
  out->n_predictions = config.n_predictions();
  out->raw_predictions = config.raw_predictions();
  MOE_TRY(parse_name(kNormKinds, "norm", text_of(config.norm()), &out->norm));
  MOE_TRY(parse_name(kPositionKinds, "positions", text_of(config.positions()), &out->positions));
  if (config.eos_token_ids() != nullptr) {
    MOE_TRY(
        out->eos_token_ids.append(config.eos_token_ids()->data(), config.eos_token_ids()->size()));
  }
  if (config.sampling() != nullptr) out->sampling = read_sampling(*config.sampling());
  if (config.head() != nullptr) MOE_TRY(read_head(*config.head(), &out->head));
  if (config.text_vector() != nullptr) {
    MOE_TRY(read_text_vector(*config.text_vector(), &out->text_vector));
  }
  if (config.layer_input() != nullptr) {
    MOE_TRY(read_layer_input(*config.layer_input(), &out->layer_input));
  }
  if (config.rotation() != nullptr) MOE_TRY(read_rotation(*config.rotation(), &out->rotation));
  return read_layers(config, out);
}

}  // namespace moe
