// SPDX-License-Identifier: MIT
// Writes each part of a ModelConfig as a FlatBuffers table; defaults take no space.
#include "src/convert/config_write.h"

#include "kernels/router/table.h"
#include "src/model/names.h"

namespace moe {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// Fields are added in the order of flatc's Create functions, the last and the widest first: padding
// costs nothing, and names tell what is what.

Offset<flatbuffers::Vector<float>> write_factors(FlatBufferBuilder& b, const float* factors,
                                                 int32_t dims) {
  if (factors == nullptr) return {};
  return b.CreateVector(factors, static_cast<size_t>(dims / 2));
}

Offset<fbs::Rope> write_rope(FlatBufferBuilder& b, const RopeConfig& rope) {
  Offset<fbs::RopeScaling> scaling;
  if (rope.scaling != RopeScaling::kNone) {
    const auto kind = b.CreateSharedString(name_in(kRopeScalings, rope.scaling));
    const auto short_factor = write_factors(b, rope.short_factor, rope.dims);
    const auto long_factor = write_factors(b, rope.long_factor, rope.dims);
    fbs::RopeScalingBuilder s(b);
    s.add_turning(rope.turning);
    s.add_long_factor(long_factor);
    s.add_short_factor(short_factor);
    s.add_original_context(rope.original_context);
    s.add_attention_factor(rope.attention_factor);
    s.add_beta_slow(rope.beta_slow);
    s.add_beta_fast(rope.beta_fast);
    s.add_high_freq_factor(rope.high_freq_factor);
    s.add_low_freq_factor(rope.low_freq_factor);
    s.add_factor(rope.factor);
    s.add_kind(kind);
    s.add_truncate(rope.truncate);
    scaling = s.Finish();
  }
  return fbs::CreateRope(b, b.CreateSharedString(name_in(kRopeKinds, rope.kind)), rope.dims,
                         rope.theta, scaling);
}

Offset<fbs::Attention> write_attention(FlatBufferBuilder& b, const AttentionConfig& a) {
  const bool has_rope = a.rope.kind != RopeKind::kNone || a.latent > 0;
  const auto rope = has_rope ? write_rope(b, a.rope) : Offset<fbs::Rope>();
  const auto qk_norm = b.CreateSharedString(name_in(kQkNorms, a.qk_norm));
  fbs::AttentionBuilder out(b);
  out.add_kv_layer(a.kv_layer);
  out.add_latent_eps(a.latent_eps);
  out.add_qkv_clip(a.qkv_clip);
  out.add_q_latent(a.q_latent);
  out.add_score_cap(a.score_cap);
  out.add_latent(a.latent);
  out.add_qk_norm(qk_norm);
  out.add_rope(rope);
  out.add_multiplier(a.multiplier);
  out.add_window(a.window);
  out.add_head_dim(a.head_dim);
  out.add_n_kv_heads(a.n_kv_heads);
  out.add_n_heads(a.n_heads);
  out.add_causal(a.causal);
  out.add_post_norm(a.norms.post);
  out.add_out_norm(a.norms.out);
  out.add_norm(a.norms.pre);
  out.add_sinks(a.sinks);
  out.add_sub_norm(a.sub_norm);
  out.add_output_gate(a.output_gate);
  out.add_gate_by_head(a.gate_by_head);
  out.add_v_norm(a.v_norm);
  out.add_v_from_k(a.v_from_k);
  out.add_in_norms(a.in_norms);
  return out.Finish();
}

Offset<fbs::Head> write_head(FlatBufferBuilder& b, const HeadConfig& h) {
  if (h.kind == HeadKind::kTokens && !h.dense && !h.tied_bias) return {};
  const auto kind = b.CreateSharedString(name_in(kHeadKinds, h.kind));
  const auto act = b.CreateSharedString(name_in(kActivations, h.act));
  Offset<flatbuffers::String> pooling;
  if (h.of_mean()) pooling = b.CreateSharedString(name_in(kPoolings, h.pooling));
  fbs::HeadBuilder out(b);
  if (h.of_mean()) out.add_pooling(pooling);
  out.add_activation(act);
  out.add_n_labels(h.n_labels);
  out.add_kind(kind);
  out.add_tied_bias(h.tied_bias);
  out.add_norm(h.norm);
  out.add_dense(h.dense);
  return out.Finish();
}

Offset<fbs::TextVector> write_text_vector(FlatBufferBuilder& b, const TextVectorConfig& v) {
  if (!v.known) return {};
  std::vector<Offset<fbs::Prompt>> prompts;
  for (const Prompt& p : v.prompts) {
    const auto name = b.CreateString(p.name);
    prompts.push_back(fbs::CreatePrompt(b, name, b.CreateString(p.text)));
  }
  const auto pooling = b.CreateSharedString(name_in(kPoolings, v.pooling));
  Offset<flatbuffers::Vector<Offset<fbs::Prompt>>> list;
  if (!prompts.empty()) list = b.CreateVector(prompts);
  fbs::TextVectorBuilder out(b);
  out.add_default_prompt(v.default_prompt);
  out.add_prompts(list);
  out.add_max_tokens(v.max_tokens);
  out.add_pooling(pooling);
  out.add_normalise(v.normalise);
  return out.Finish();
}

Offset<fbs::Rotation> write_rotation(FlatBufferBuilder& b, const RotationConfig& r) {
  if (r.block == 0) return {};
  std::vector<Offset<fbs::RotationSigns>> signs;
  for (const RotationSigns& s : r.signs) {
    const auto bits = b.CreateVector(s.bits, (static_cast<size_t>(s.width) + 7) / 8);
    signs.push_back(fbs::CreateRotationSigns(b, s.width, bits));
  }
  Offset<flatbuffers::Vector<Offset<fbs::RotationSigns>>> list;
  if (!signs.empty()) list = b.CreateVector(signs);
  return fbs::CreateRotation(b, r.block, list);
}

Offset<fbs::LayerInput> write_layer_input(FlatBufferBuilder& b, const LayerInputConfig& in) {
  if (in.width == 0) return {};
  const auto act = b.CreateSharedString(name_in(kActivations, in.act));
  return fbs::CreateLayerInput(b, in.width, act, in.multiplier, in.projection_multiplier,
                               in.projection_eps);
}

Offset<fbs::Router> write_router(FlatBufferBuilder& b, const RouterConfig& r) {
  const auto kind = b.CreateSharedString(router_info(r.kind).name);
  const auto weights = b.CreateSharedString(name_in(kRouterWeights, r.weights));
  const auto gate = b.CreateSharedString(name_in(kCosineGates, r.gate));
  const auto order = b.CreateSharedString(name_in(kCapacityOrders, r.order));
  fbs::RouterBuilder out(b);
  out.add_top_groups(r.top_groups);
  out.add_n_groups(r.n_groups);
  out.add_order(order);
  out.add_min_capacity(r.min_capacity);
  out.add_gamma(r.gamma);
  out.add_jitter(r.jitter);
  out.add_cosine_eps(r.cosine_eps);
  out.add_tau(r.tau);
  out.add_gate(gate);
  out.add_scale(r.scale);
  out.add_max_k(r.max_k);
  out.add_min_k(r.min_k);
  out.add_threshold(r.threshold);
  out.add_k(r.k);
  out.add_weights(weights);
  out.add_kind(kind);
  out.add_topk_norm(r.topk_norm);
  out.add_normalise_token(r.normalise_token);
  return out.Finish();
}

Offset<fbs::FeedForward> write_ffn(FlatBufferBuilder& b, const FfnConfig& f) {
  Offset<fbs::Moe> moe;
  if (f.kind == FfnKind::kMoe) {
    const MoeConfig& m = f.moe;
    const bool both = m.head && m.merge;
    const auto router = write_router(b, m.router);
    fbs::MoeBuilder out(b);
    out.add_shared_d_ff(m.shared.d_ff);
    out.add_router(router);
    out.add_n_sublayers(m.n_sublayers);
    out.add_n_subheads(m.n_subheads);
    out.add_n_experts(m.n_experts);
    out.add_merge(m.merge && !both);
    out.add_head(m.head && !both);
    out.add_shared_gated(m.shared.gated);
    out.add_multi_head(both);
    out.add_apart(m.apart);
    out.add_router_norm(m.router_norm);
    out.add_expert_scale(m.expert_scale);
    moe = out.Finish();
  }
  const auto kind = b.CreateSharedString(name_in(kActivations, f.act.kind));
  const auto act = fbs::CreateActivation(b, kind, f.act.alpha, f.act.limit, f.act.up_offset);
  fbs::FeedForwardBuilder out(b);
  out.add_moe(moe);
  out.add_activation(act);
  out.add_d_ff(f.d_ff);
  out.add_post_norm(f.norms.post);
  out.add_out_norm(f.norms.out);
  out.add_norm(f.norms.pre);
  out.add_sub_norm(f.sub_norm);
  out.add_gated(f.gated);
  out.add_in_norms(f.in_norms);
  return out.Finish();
}

Offset<fbs::Mixer> write_mixer(FlatBufferBuilder& b, const MixerBlock& m) {
  const MixerInfo& info = mixer_info(m.mixer);
  std::vector<Offset<fbs::MixerParam>> params;
  for (int i = 0; i < info.n_params(); ++i) {
    const auto name = b.CreateSharedString(info.params[i].name);
    params.push_back(fbs::CreateMixerParam(b, name, m.mixer.params[i]));
  }
  const auto kind = b.CreateSharedString(info.name);
  const auto list = b.CreateVector(params);
  fbs::MixerBuilder out(b);
  out.add_params(list);
  out.add_kind(kind);
  out.add_post_norm(m.norms.post);
  out.add_out_norm(m.norms.out);
  out.add_norm(m.norms.pre);
  return out.Finish();
}

Offset<fbs::Sampling> write_sampling(FlatBufferBuilder& b, const SamplingAdvice& s) {
  fbs::SamplingBuilder out(b);
  out.add_repetition_window(s.repetition_window);
  out.add_repetition_penalty(s.repetition_penalty);
#define MOE_SAMPLING_FILTER(name, off, range, text) out.add_##name(s.name);
#include "src/model/sampling_list.h"
  out.add_top_k(s.top_k);
  out.add_temperature(s.temperature);
  return out.Finish();
}

std::vector<Offset<fbs::Layer>> write_layers(FlatBufferBuilder& b, const ModelConfig& c) {
  std::vector<Offset<fbs::Layer>> layers;
  for (const LayerConfig& layer : c.layers) {
    Offset<fbs::Attention> attention, cross;
    Offset<fbs::FeedForward> ffn;
    if (layer.has_attention) attention = write_attention(b, layer.attention);
    if (layer.has_ffn) ffn = write_ffn(b, layer.ffn);
    if (layer.has_cross) cross = write_attention(b, layer.cross);
    Offset<fbs::Mixer> mixer;
    if (layer.has_mixer) mixer = write_mixer(b, layer.mixer);
    layers.push_back(fbs::CreateLayer(b, attention, ffn, cross, mixer, layer.multiplier));
  }
  return layers;
}

// True if a reader of version 1.1 would ignore something.
bool is_of_version_2(const ModelConfig& config) {
  bool any = config.logit_cap != 0;
  for (const LayerConfig& layer : config.layers) {
    any = any || layer.attention.score_cap != 0 || layer.ffn.moe.router.n_groups > 1;
  }
  return any;
}

bool clips(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention.qkv_clip != 0) return true;
  }
  return false;
}

// A reader of version 1.5 would leave out a norm or a factor that has no tensor.
bool is_of_version_6(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention.v_norm || layer.multiplier != 1) return true;
  }
  return false;
}

// A reader of version 1.0 would take an encoder for a decoder, one of 1.2 would misread an
// encoder-decoder, one of 1.3 would not clip, one of 1.4 would make other vectors of texts, one of
// 1.5 would classify by the first token, and one of 1.6 would not rotate, and would run a layer
// that guesses like the others.
uint16_t minor_version(const ModelConfig& config) {
  if (config.rotation.block > 0 || config.n_predictions > 0) return 7;
  if (is_of_version_6(config) || config.head.of_mean()) return 6;
  if (config.text_vector.known) return 5;
  if (clips(config)) return 4;
  if (config.is_encoder_decoder()) return 3;
  if (is_of_version_2(config)) return 2;
  return config.is_encoder() ? 1 : 0;
}

}  // namespace

Offset<fbs::ModelConfig> write_config(FlatBufferBuilder& b, const ModelConfig& c,
                                      Described described) {
  const bool whole = described == Described::kWhole;
  const auto layers = write_layers(b, c);
  const auto name = b.CreateString(whole ? c.name.c_str() : "");
  const auto norm = b.CreateSharedString(name_in(kNormKinds, c.norm));
  const auto positions = b.CreateSharedString(name_in(kPositionKinds, c.positions));
  const auto eos = b.CreateVector(c.eos_token_ids.data(), c.eos_token_ids.size());
  const auto layer_vector = b.CreateVector(layers);
  const auto head = write_head(b, c.head);
  Offset<fbs::Sampling> sampling;
  if (whole && c.sampling.given) sampling = write_sampling(b, c.sampling);
  const auto text_vector = write_text_vector(b, c.text_vector);
  const auto layer_input = write_layer_input(b, c.layer_input);
  const auto rotation = write_rotation(b, c.rotation);
  fbs::ModelConfigBuilder out(b);
  out.add_rotation(rotation);
  out.add_n_predictions(c.n_predictions);
  out.add_layer_input(layer_input);
  out.add_text_vector(text_vector);
  out.add_sampling(sampling);
  out.add_forced_token_id(c.forced_token_id);
  out.add_start_token_id(c.start_token_id);
  out.add_source_length(c.source_length);
  out.add_n_encoder_layers(c.n_encoder_layers);
  out.add_logit_cap(c.logit_cap);
  out.add_mask_token_id(c.mask_token_id);
  out.add_head(head);
  out.add_layers(layer_vector);
  out.add_eos_token_ids(eos);
  out.add_pad_token_id(c.pad_token_id);
  out.add_bos_token_id(c.bos_token_id);
  out.add_logit_multiplier(c.logit_multiplier);
  out.add_residual_multiplier(c.residual_multiplier);
  out.add_embedding_multiplier(c.embedding_multiplier);
  out.add_positions(positions);
  out.add_norm_eps(c.norm_eps);
  out.add_norm(norm);
  out.add_context_length(c.context_length);
  out.add_d_model(c.d_model);
  out.add_vocab_size(c.vocab_size);
  out.add_name(name);
  out.add_encoder_norm(c.encoder_norm);
  out.add_final_norm(c.final_norm);
  out.add_add_bos(c.add_bos);
  out.add_embedding_norm(c.embedding_norm);
  out.add_second_positions(c.second_positions);
  out.add_raw_predictions(c.raw_predictions);
  out.add_tie_embeddings(c.tie_embeddings);
  return out.Finish();
}

Status finish_model(ModelWriter& writer, const ModelConfig& config,
                    const ModelWriter::Builder<fbs::Tokenizer>& tokenizer,
                    const ModelWriter::Notes& notes) {
  MOE_TRY(validate(config));
  return writer.finish([&config](FlatBufferBuilder& b) { return write_config(b, config); },
                       tokenizer, notes, minor_version(config));
}

}  // namespace moe
