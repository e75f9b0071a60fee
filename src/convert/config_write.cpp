// SPDX-License-Identifier: MIT
// Writes each part of a ModelConfig as a FlatBuffers table; defaults take no space.
#include "src/convert/config_write.h"

#include "kernels/router/table.h"
#include "src/model/names.h"

namespace moe {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Offset<flatbuffers::Vector<float>> write_factors(FlatBufferBuilder& b, const float* factors,
                                                 int32_t dims) {
  if (factors == nullptr) return {};
  return b.CreateVector(factors, static_cast<size_t>(dims / 2));
}

Offset<fbs::Rope> write_rope(FlatBufferBuilder& b, const RopeConfig& rope) {
  if (rope.kind == RopeKind::kNone) return {};
  Offset<fbs::RopeScaling> scaling;
  if (rope.scaling != RopeScaling::kNone) {
    const auto kind = b.CreateSharedString(name_in(kRopeScalings, rope.scaling));
    const auto short_factor = write_factors(b, rope.short_factor, rope.dims);
    const auto long_factor = write_factors(b, rope.long_factor, rope.dims);
    scaling =
        fbs::CreateRopeScaling(b, kind, rope.factor, rope.low_freq_factor, rope.high_freq_factor,
                               rope.beta_fast, rope.beta_slow, rope.truncate, rope.attention_factor,
                               rope.original_context, short_factor, long_factor);
  }
  return fbs::CreateRope(b, b.CreateSharedString(name_in(kRopeKinds, rope.kind)), rope.dims,
                         rope.theta, scaling);
}

Offset<fbs::Attention> write_attention(FlatBufferBuilder& b, const AttentionConfig& a) {
  const auto rope = write_rope(b, a.rope);
  const auto qk_norm = b.CreateSharedString(name_in(kQkNorms, a.qk_norm));
  return fbs::CreateAttention(b, a.n_heads, a.n_kv_heads, a.head_dim, a.window, a.multiplier, rope,
                              qk_norm, a.sub_norm, a.sinks, a.latent, a.norms.pre, a.norms.out,
                              a.norms.post, a.causal, a.score_cap, a.q_latent, a.qkv_clip);
}

Offset<fbs::Head> write_head(FlatBufferBuilder& b, const HeadConfig& h) {
  if (h.kind == HeadKind::kTokens && !h.dense && !h.tied_bias) return {};
  const auto kind = b.CreateSharedString(name_in(kHeadKinds, h.kind));
  const auto act = b.CreateSharedString(name_in(kActivations, h.act));
  return fbs::CreateHead(b, kind, h.n_labels, h.dense, h.norm, act, h.tied_bias);
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
  return fbs::CreateTextVector(b, pooling, v.normalise, v.max_tokens, list, v.default_prompt);
}

Offset<fbs::Router> write_router(FlatBufferBuilder& b, const RouterConfig& r) {
  const auto kind = b.CreateSharedString(router_info(r.kind).name);
  const auto weights = b.CreateSharedString(name_in(kRouterWeights, r.weights));
  const auto gate = b.CreateSharedString(name_in(kCosineGates, r.gate));
  const auto order = b.CreateSharedString(name_in(kCapacityOrders, r.order));
  return fbs::CreateRouter(b, kind, weights, r.k, r.threshold, r.min_k, r.max_k, r.scale, gate,
                           r.tau, r.cosine_eps, r.normalise_token, r.topk_norm, r.jitter, r.gamma,
                           r.min_capacity, order, r.n_groups, r.top_groups);
}

Offset<fbs::FeedForward> write_ffn(FlatBufferBuilder& b, const FfnConfig& f) {
  Offset<fbs::Moe> moe;
  if (f.kind == FfnKind::kMoe) {
    const MoeConfig& m = f.moe;
    const bool both = m.head && m.merge;
    moe =
        fbs::CreateMoe(b, m.n_experts, m.n_subheads, both, m.n_sublayers, write_router(b, m.router),
                       m.shared.d_ff, m.shared.gated, m.head && !both, m.merge && !both);
  }
  const auto kind = b.CreateSharedString(name_in(kActivations, f.act.kind));
  const auto act = fbs::CreateActivation(b, kind, f.act.alpha, f.act.limit, f.act.up_offset);
  return fbs::CreateFeedForward(b, f.d_ff, f.gated, f.sub_norm, act, moe, f.norms.pre, f.norms.out,
                                f.norms.post);
}

Offset<fbs::Sampling> write_sampling(FlatBufferBuilder& b, const SamplingAdvice& s) {
  return fbs::CreateSampling(b, s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty,
                             s.repetition_window);
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

// A reader of version 1.0 would take an encoder for a decoder, one of 1.2 would misread an
// encoder-decoder, one of 1.3 would not clip, and one of 1.4 would make other vectors of texts.
uint16_t minor_version(const ModelConfig& config) {
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
  std::vector<Offset<fbs::Layer>> layers;
  for (const LayerConfig& layer : c.layers) {
    Offset<fbs::Attention> attention, cross;
    Offset<fbs::FeedForward> ffn;
    if (layer.has_attention) attention = write_attention(b, layer.attention);
    if (layer.has_ffn) ffn = write_ffn(b, layer.ffn);
    if (layer.has_cross) cross = write_attention(b, layer.cross);
    layers.push_back(fbs::CreateLayer(b, attention, ffn, cross));
  }
  const auto name = b.CreateString(whole ? c.name.c_str() : "");
  const auto norm = b.CreateSharedString(name_in(kNormKinds, c.norm));
  const auto positions = b.CreateSharedString(name_in(kPositionKinds, c.positions));
  const auto eos = b.CreateVector(c.eos_token_ids.data(), c.eos_token_ids.size());
  const auto layer_vector = b.CreateVector(layers);
  const auto head = write_head(b, c.head);
  Offset<fbs::Sampling> sampling;
  if (whole && c.sampling.given) sampling = write_sampling(b, c.sampling);
  const auto text_vector = write_text_vector(b, c.text_vector);
  return fbs::CreateModelConfig(
      b, name, c.vocab_size, c.d_model, c.context_length, norm, c.norm_eps, positions,
      c.tie_embeddings, c.embedding_norm, c.embedding_multiplier, c.residual_multiplier,
      c.logit_multiplier, c.bos_token_id, c.pad_token_id, c.add_bos, eos, layer_vector,
      c.final_norm, head, c.mask_token_id, c.logit_cap, c.n_encoder_layers, c.source_length,
      c.encoder_norm, c.start_token_id, c.forced_token_id, sampling, text_vector);
}

Status finish_model(ModelWriter& writer, const ModelConfig& config,
                    const ModelWriter::Builder<fbs::Tokenizer>& tokenizer,
                    const ModelWriter::Notes& notes) {
  MOE_TRY(validate(config));
  return writer.finish([&config](FlatBufferBuilder& b) { return write_config(b, config); },
                       tokenizer, notes, minor_version(config));
}

}  // namespace moe
