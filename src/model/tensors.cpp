#include "src/model/tensors.h"

#include "kernels/router/table.h"

namespace moe {
namespace {

// Collects the tensors of a part. A failed push is kept and returned at the end.
class List {
 public:
  List(const ModelConfig& config, Array<TensorSpec>* out) : config_(config), out_(out) {}

  void add(const TensorSpec& spec) {
    if (status_.ok()) status_ = out_->push(spec);
  }
  void matrix(Role role, int32_t rows, int32_t cols, int32_t sublayer = -1) {
    add({role, TensorKind::kMatrix, true, sublayer, rows, cols});
  }
  void f32_input(Role role, int32_t rows, int32_t cols) {
    add({role, TensorKind::kF32Input, true, -1, rows, cols});
  }
  void vector(Role role, int32_t n, int32_t sublayer = -1) {
    add({role, TensorKind::kVector, true, sublayer, n, 1});
  }
  void bias(Role role, int32_t n, int32_t sublayer = -1) {
    add({role, TensorKind::kVector, false, sublayer, n, 1});
  }
  // Only a LayerNorm may have a bias.
  void norm(Role weight, Role bias_role, int32_t n, int32_t sublayer = -1) {
    vector(weight, n, sublayer);
    if (config_.norm == NormKind::kLayer) bias(bias_role, n, sublayer);
  }
  const Status& status() const { return status_; }

 private:
  const ModelConfig& config_;
  Array<TensorSpec>* out_;
  Status status_;
};

void add_attention(const ModelConfig& model, const AttentionConfig& a, List* list) {
  const int32_t d = model.d_model;
  const int32_t q = a.n_heads * a.head_dim;
  const int32_t kv = a.n_kv_heads * a.head_dim;
  const int32_t kv_in = a.latent > 0 ? a.latent : d;
  const bool whole = a.qk_norm == QkNorm::kWhole;
  list->norm(Role::kNorm, Role::kNormBias, d);
  list->matrix(Role::kQ, q, d);
  list->matrix(Role::kK, kv, kv_in);
  list->matrix(Role::kV, kv, kv_in);
  list->matrix(Role::kO, d, q);
  if (a.latent > 0) {
    list->matrix(Role::kLatent, a.latent + a.rope.dims, d);
    list->vector(Role::kLatentNorm, a.latent);
    list->f32_input(Role::kKRope, kv, a.rope.dims);
  }
  list->bias(Role::kQBias, q);
  list->bias(Role::kKBias, kv);
  list->bias(Role::kVBias, kv);
  list->bias(Role::kOBias, d);
  if (a.qk_norm != QkNorm::kNone) {
    list->vector(Role::kQNorm, whole ? q : a.head_dim);
    list->vector(Role::kKNorm, whole ? kv : a.head_dim);
  }
  if (a.sub_norm) list->norm(Role::kSubNorm, Role::kSubNormBias, q);
  if (a.sinks) list->vector(Role::kSinks, a.n_heads);
}

// One feed-forward network of width d_ff on d_in.
void add_network(const FfnConfig& ffn, int32_t d_in, int32_t d_ff, int32_t sublayer, List* list) {
  if (ffn.gated) list->matrix(Role::kGate, d_ff, d_in, sublayer);
  list->matrix(Role::kUp, d_ff, d_in, sublayer);
  list->matrix(Role::kDown, d_in, d_ff, sublayer);
  if (ffn.gated) list->bias(Role::kGateBias, d_ff, sublayer);
  list->bias(Role::kUpBias, d_ff, sublayer);
  list->bias(Role::kDownBias, d_in, sublayer);
  if (ffn.sub_norm) list->norm(Role::kSubNorm, Role::kSubNormBias, d_ff, sublayer);
}

void add_ffn(const ModelConfig& model, const FfnConfig& ffn, List* list) {
  list->norm(Role::kNorm, Role::kNormBias, model.d_model);
  const bool moe = ffn.kind == FfnKind::kMoe;
  const int32_t d_ff = moe ? ffn.moe.shared.d_ff : ffn.d_ff;
  if (d_ff > 0) add_network(ffn, model.d_model, d_ff, -1, list);
  if (moe && ffn.moe.shared.gated) list->f32_input(Role::kSharedGate, 1, model.d_model);
}

void add_router(const ModelConfig& model, const MoeConfig& moe, List* list) {
  const int32_t d_in = model.d_model / moe.n_subheads;
  const RouterInfo& info = router_info(moe.router);
  switch (info.scores) {
    case RouterScores::kCosine:
      list->f32_input(Role::kProj, 0, d_in);
      list->bias(Role::kProjBias, 0);
      list->f32_input(Role::kExpertEmbedding, moe.n_experts, 0);
      break;
    case RouterScores::kTable:
      list->add({Role::kTable, TensorKind::kIds, true, -1, model.vocab_size, 1});
      break;
    case RouterScores::kLinear:
      list->f32_input(Role::kScores, moe.n_experts, d_in);
      if (info.bias) list->bias(Role::kBias, moe.n_experts);
      if (info.selection_bias) list->bias(Role::kSelectionBias, moe.n_experts);
  }
  if (!moe.multi_head) return;
  list->matrix(Role::kHead, model.d_model, model.d_model);
  list->bias(Role::kHeadBias, model.d_model);
  list->matrix(Role::kMerge, model.d_model, model.d_model);
  list->bias(Role::kMergeBias, model.d_model);
}

void add_expert(const ModelConfig& model, const FfnConfig& ffn, List* list) {
  const int32_t d_in = model.d_model / ffn.moe.n_subheads;
  if (ffn.moe.n_sublayers == 0) add_network(ffn, d_in, ffn.d_ff, -1, list);
  for (int32_t s = 0; s < ffn.moe.n_sublayers; ++s) {
    list->norm(Role::kNorm, Role::kNormBias, d_in, s);
    add_network(ffn, d_in, ffn.d_ff, s, list);
  }
}

void add_part(const ModelConfig& config, Part part, const LayerConfig* layer, List* list) {
  switch (part) {
    case Part::kEmbedding:
      return list->matrix(Role::kWeight, config.vocab_size, config.d_model);
    case Part::kPositionEmbedding:
      return list->matrix(Role::kWeight, config.context_length, config.d_model);
    case Part::kEmbeddingNorm:
    case Part::kFinalNorm:
      return list->norm(Role::kWeight, Role::kBias, config.d_model);
    case Part::kHead:
      list->matrix(Role::kWeight, config.vocab_size, config.d_model);
      return list->bias(Role::kBias, config.vocab_size);
    case Part::kAttention:
      return add_attention(config, layer->attention, list);
    case Part::kFfn:
      return add_ffn(config, layer->ffn, list);
    case Part::kRouter:
      return add_router(config, layer->ffn.moe, list);
    case Part::kExperts:
      return add_expert(config, layer->ffn, list);
  }
}

}  // namespace

bool has_part(const ModelConfig& config, Part part, int32_t layer) {
  if (!part_has_layer(part)) {
    if (layer != -1) return false;
    if (part == Part::kPositionEmbedding) return config.positions == PositionKind::kLearned;
    if (part == Part::kEmbeddingNorm) return config.embedding_norm;
    return part != Part::kHead || !config.tie_embeddings;
  }
  if (layer < 0 || layer >= config.n_layers()) return false;
  const bool of_moe = part == Part::kRouter || part == Part::kExperts;
  return !of_moe || config.layers[static_cast<size_t>(layer)].ffn.kind == FfnKind::kMoe;
}

Status part_tensors(const ModelConfig& config, Part part, int32_t layer, Array<TensorSpec>* out) {
  out->clear();
  if (!has_part(config, part, layer)) return {};
  List list(config, out);
  add_part(config, part, layer < 0 ? nullptr : &config.layers[static_cast<size_t>(layer)], &list);
  return list.status();
}

}  // namespace moe
