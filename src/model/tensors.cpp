// SPDX-License-Identifier: MIT
// Computes the sizes that shapes consist of, and lists the tensors that each part of a model must
// have.
#include "src/model/tensors.h"

#include "kernels/router/table.h"
#include "src/model/tensor_rows.h"

namespace moe {
namespace {

void set_block_norms(const BlockNorms& norms, PartSizes* s) {
  s->norm = norms.pre ? s->d_model : 0;
  s->out_norm = norms.out ? s->d_model : 0;
  s->post_norm = norms.post ? s->d_model : 0;
}

void set_attention(const AttentionConfig& a, PartSizes* s) {
  set_block_norms(a.norms, s);
  s->q = a.n_heads * a.head_dim;
  s->kv = a.shares_kv() ? 0 : a.n_kv_heads * a.head_dim;
  s->v = a.v_from_k ? 0 : s->kv;
  s->kv_in = a.latent > 0 ? a.latent : s->d_model;
  s->q_in = a.q_latent > 0 ? a.q_latent : s->d_model;
  s->q_latent = a.q_latent;
  s->latent = a.latent;
  s->latent_out = a.latent > 0 ? a.latent + a.rope.dims : 0;
  s->rope_dims = a.latent > 0 ? a.rope.dims : 0;
  if (a.qk_norm == QkNorm::kHead) s->q_norm = s->k_norm = a.head_dim;
  if (a.qk_norm == QkNorm::kWhole) s->q_norm = s->q, s->k_norm = s->kv;
  if (a.shares_kv()) s->k_norm = 0;
  s->sub_norm = a.sub_norm ? s->q : 0;
  s->in_norm = a.in_norms ? s->d_model : 0;
  s->sinks = a.sinks ? a.n_heads : 0;
  s->output_gate = a.n_gates();
}

void set_network(const FfnConfig& ffn, int32_t d_in, int32_t d_ff, PartSizes* s) {
  s->d_in = d_in;
  s->d_ff = d_ff;
  s->gate = ffn.gated ? d_ff : 0;
  s->sub_norm = ffn.sub_norm ? d_ff : 0;
}

void set_ffn(const FfnConfig& ffn, PartSizes* s) {
  set_block_norms(ffn.norms, s);
  const bool moe = ffn.kind == FfnKind::kMoe;
  const int32_t d_ff = moe ? ffn.moe.shared.d_ff : ffn.d_ff;
  if (d_ff > 0) set_network(ffn, s->d_model, d_ff, s);
  s->in_norm = ffn.in_norms ? s->d_model : 0;
  s->gate_in_norm = ffn.gated ? s->in_norm : 0;
  s->shared_gate = moe && ffn.moe.shared.gated ? 1 : 0;
  s->apart = moe && ffn.moe.apart ? s->d_model : 0;
}

void set_router(const MoeConfig& moe, PartSizes* s) {
  const RouterInfo& info = router_info(moe.router);
  s->d_in = s->d_model / moe.n_subheads;
  s->norm = moe.router_norm ? s->d_model : 0;
  s->expert_scale = moe.expert_scale ? moe.n_experts : 0;
  s->head = moe.head ? s->d_model : 0;
  s->merge = moe.merge ? s->d_model : 0;
  switch (info.scores) {
    case RouterScores::kCosine:
      s->d_e = PartSizes::kInFile;
      s->embeddings = moe.n_experts;
      break;
    case RouterScores::kTable:
      s->table = s->vocab;
      break;
    case RouterScores::kLinear:
      s->scores = moe.n_experts;
      s->score_bias = info.bias ? moe.n_experts : 0;
      s->selection_bias = info.selection_bias ? moe.n_experts : 0;
  }
}

void set_expert(const FfnConfig& ffn, PartSizes* s) {
  const int32_t d_in = s->d_model / ffn.moe.n_subheads;
  set_network(ffn, d_in, ffn.d_ff, s);
  s->norm = ffn.moe.n_sublayers > 0 ? d_in : 0;
}

void set_head(const ModelConfig& config, PartSizes* s) {
  s->head_dense = config.head.dense ? s->d_model : 0;
  s->head_norm = config.head.norm ? s->d_model : 0;
  s->outputs = config.n_outputs();
  s->head_rows = config.tie_embeddings ? 0 : s->outputs;
  s->tied_outputs = config.head.tied_bias ? s->outputs : 0;
  if (config.head.tied_bias) s->outputs = 0;
}

PartSizes sizes_of(const ModelConfig& config, Part part, const LayerConfig* layer) {
  PartSizes s;
  s.vocab = config.vocab_size;
  s.context = config.context_length;
  s.source = config.source_length;
  s.d_model = s.norm = config.d_model;
  if (part == Part::kHead) set_head(config, &s);
  s.layer_input = config.layer_input.width;
  s.layer_inputs = config.layer_input.width * config.n_layers();
  if (part == Part::kAttention) set_attention(layer->attention, &s);
  if (part == Part::kMixer) set_block_norms(layer->mixer.norms, &s);
  if (part == Part::kCrossAttention) set_attention(layer->cross, &s);
  if (part == Part::kFfn) set_ffn(layer->ffn, &s);
  if (part == Part::kRouter) set_router(layer->ffn.moe, &s);
  if (part == Part::kExperts) set_expert(layer->ffn, &s);
  if (config.norm != NormKind::kLayer) return s;
  s.norm_bias = s.norm;
  s.head_norm_bias = s.head_norm;
  s.out_norm_bias = s.out_norm;
  s.post_norm_bias = s.post_norm;
  s.sub_norm_bias = s.sub_norm;
  return s;
}

Status add_rows(Part part, const PartSizes& sizes, int32_t sublayer, Array<TensorSpec>* out) {
  for (const TensorRow& row : tensor_rows::kAll) {
    const int32_t rows = sizes.*row.rows, cols = sizes.*row.cols;
    if (!row.in(part) || rows == 0 || cols == 0) continue;
    MOE_TRY(out->push({row.role, row.kind, row.of_network(), sublayer, std::max(rows, 0),
                       std::max(cols, 0), row.name}));
  }
  return {};
}

// Rows and columns of a mixer's weight, no rows: there is none. Sizes of a valid configuration fit.
TensorSpec mixer_tensor(const MixerConfig& mixer, int weight, int32_t d_model) {
  const MixerWeight& w = mixer_info(mixer).weights[weight];
  const auto n = static_cast<int32_t>(w.n(mixer, d_model));
  TensorSpec spec;
  spec.role = mixer_role(mixer.kind, weight);
  spec.kind = tensor_rows::kind_of(w.use);
  spec.rows = w.use == MixerUse::kOut ? d_model : n;
  if (w.use == MixerUse::kIn) spec.cols = d_model;
  if (w.use == MixerUse::kOut) spec.cols = n;
  spec.name = w.name;
  return spec;
}

Status add_mixer(const MixerConfig& mixer, int32_t d_model, Array<TensorSpec>* out) {
  for (int w = 0; w < mixer_info(mixer).n_weights(); ++w) {
    const TensorSpec spec = mixer_tensor(mixer, w, d_model);
    if (spec.rows > 0) MOE_TRY(out->push(spec));
  }
  return {};
}

}  // namespace

namespace {

bool has_own_part(const ModelConfig& config, Part part) {
  const bool two = config.is_encoder_decoder();
  switch (part) {
    case Part::kPositionEmbedding:
      return config.positions == PositionKind::kLearned;
    case Part::kSecondPositions:
      return config.second_positions;
    case Part::kEmbeddingNorm:
      return config.embedding_norm;
    case Part::kSourcePositions:
      return two && config.positions == PositionKind::kLearned;
    case Part::kSourceEmbeddingNorm:
      return two && config.embedding_norm;
    case Part::kEncoderNorm:
      return config.encoder_norm;
    case Part::kFinalNorm:
      return config.final_norm;
    case Part::kHead:
      if (config.head.kind == HeadKind::kNone) return false;
      return config.head.dense || config.head.tied_bias || !config.tie_embeddings;
    case Part::kLayerInputs:
      return config.layer_input.width > 0;
    default:
      return true;
  }
}

}  // namespace

bool has_part(const ModelConfig& config, Part part, int32_t layer) {
  if (!part_has_layer(part)) return layer == -1 && has_own_part(config, part);
  if (layer < 0 || layer >= config.n_layers()) return false;
  const LayerConfig& l = config.layers[static_cast<size_t>(layer)];
  if (part == Part::kAttention) return l.has_attention;
  if (part == Part::kMixer) return kHasMixers && l.has_mixer;
  if (part == Part::kCrossAttention) return l.has_cross;
  if (part == Part::kLayerInput) return config.layer_input.width > 0;
  if (part == Part::kPrediction) return layer >= config.n_main_layers();
  if (!l.has_ffn) return false;
  if (part != Part::kFfn) return l.ffn.kind == FfnKind::kMoe;
  const PartSizes s = sizes_of(config, part, &l);  // an MoE layer may consist of experts only
  return s.d_ff > 0 || s.norm > 0 || s.out_norm > 0 || s.post_norm > 0;
}

Status part_tensors(const ModelConfig& config, Part part, int32_t layer, Array<TensorSpec>* out) {
  out->clear();
  if (!has_part(config, part, layer)) return {};
  const LayerConfig* l = layer < 0 ? nullptr : &config.layers[static_cast<size_t>(layer)];
  const PartSizes sizes = sizes_of(config, part, l);
  const int32_t n_sublayers = part == Part::kExperts ? l->ffn.moe.n_sublayers : 0;
  if (kHasMixers && part == Part::kMixer) {
    MOE_TRY(add_rows(part, sizes, -1, out));
    return add_mixer(l->mixer.mixer, config.d_model, out);
  }
  if (n_sublayers == 0) return add_rows(part, sizes, -1, out);
  for (int32_t s = 0; s < n_sublayers; ++s) MOE_TRY(add_rows(part, sizes, s, out));
  return {};
}

}  // namespace moe
