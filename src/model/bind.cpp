#include "src/model/bind.h"

namespace moe {
namespace {

const float* vector(const BlobMatrix& m, const uint8_t* base) {
  return base == nullptr ? nullptr : reinterpret_cast<const float*>(base + m.offset);
}

void set_weight(const BlobMatrix& m, const uint8_t* base, const Norm& like, Norm* out) {
  out->kind = like.kind;
  out->eps = like.eps;
  out->weight = vector(m, base);
}

// The roles of one feed-forward network; others are left alone.
void bind_network(const BlobMatrix& m, const uint8_t* base, const Norm& like, Ffn* out) {
  switch (m.role) {
    case Role::kGate:
      out->gate = view(m, base);
      break;
    case Role::kUp:
      out->up = view(m, base);
      break;
    case Role::kDown:
      out->down = view(m, base);
      break;
    case Role::kGateBias:
      out->gate_bias = vector(m, base);
      break;
    case Role::kUpBias:
      out->up_bias = vector(m, base);
      break;
    case Role::kDownBias:
      out->down_bias = vector(m, base);
      break;
    case Role::kSubNorm:
      set_weight(m, base, like, &out->sub_norm);
      break;
    case Role::kSubNormBias:
      out->sub_norm.bias = vector(m, base);
      break;
    default:
      break;
  }
}

}  // namespace

Norm norm_of(const ModelConfig& config) { return {config.norm, config.norm_eps, nullptr, nullptr}; }

void bind_norm(const BlobLayout& layout, const uint8_t* base, const Norm& like, Norm* out) {
  for (const BlobMatrix& m : layout.matrices) {
    if (m.role == Role::kWeight) set_weight(m, base, like, out);
    if (m.role == Role::kBias) out->bias = vector(m, base);
  }
}

void bind_weight(const BlobLayout& layout, const uint8_t* base, Matrix* weight,
                 const float** bias) {
  for (const BlobMatrix& m : layout.matrices) {
    if (m.role == Role::kWeight) *weight = view(m, base);
    if (m.role == Role::kBias) *bias = vector(m, base);
  }
}

void bind_attention(const BlobLayout& layout, const uint8_t* base, const Norm& like,
                    AttentionWeights* out) {
  for (const BlobMatrix& m : layout.matrices) {
    switch (m.role) {
      case Role::kNorm:
        set_weight(m, base, like, &out->norm);
        break;
      case Role::kNormBias:
        out->norm.bias = vector(m, base);
        break;
      case Role::kQ:
        out->q = view(m, base);
        break;
      case Role::kK:
        out->k = view(m, base);
        break;
      case Role::kV:
        out->v = view(m, base);
        break;
      case Role::kO:
        out->o = view(m, base);
        break;
      case Role::kQBias:
        out->q_bias = vector(m, base);
        break;
      case Role::kKBias:
        out->k_bias = vector(m, base);
        break;
      case Role::kVBias:
        out->v_bias = vector(m, base);
        break;
      case Role::kOBias:
        out->o_bias = vector(m, base);
        break;
      case Role::kQNorm:
        set_weight(m, base, like, &out->q_norm);
        break;
      case Role::kKNorm:
        set_weight(m, base, like, &out->k_norm);
        break;
      case Role::kSubNorm:
        set_weight(m, base, like, &out->sub_norm);
        break;
      case Role::kSubNormBias:
        out->sub_norm.bias = vector(m, base);
        break;
      case Role::kSinks:
        out->sinks = vector(m, base);
        break;
      case Role::kLatent:
        out->latent = view(m, base);
        break;
      case Role::kLatentNorm:
        set_weight(m, base, {NormKind::kRms, like.eps, nullptr, nullptr}, &out->latent_norm);
        break;
      case Role::kKRope:
        out->k_rope = view(m, base);
        break;
      default:
        break;
    }
  }
}

void bind_ffn(const BlobLayout& layout, const uint8_t* base, const Norm& like, LayerWeights* out) {
  for (const BlobMatrix& m : layout.matrices) {
    switch (m.role) {
      case Role::kNorm:
        set_weight(m, base, like, &out->ffn_norm);
        break;
      case Role::kNormBias:
        out->ffn_norm.bias = vector(m, base);
        break;
      case Role::kSharedGate:
        out->shared_gate = view(m, base);
        break;
      default:
        bind_network(m, base, like, &out->ffn);
    }
  }
}

void bind_router(const BlobLayout& layout, const uint8_t* base, LayerWeights* out) {
  RouterWeightsView* router = &out->router;
  for (const BlobMatrix& m : layout.matrices) {
    switch (m.role) {
      case Role::kScores:
        router->scores = view(m, base);
        break;
      case Role::kBias:
        router->bias = vector(m, base);
        break;
      case Role::kProj:
        router->proj = view(m, base);
        break;
      case Role::kProjBias:
        router->proj_bias = vector(m, base);
        break;
      case Role::kExpertEmbedding:
        router->embedding = view(m, base);
        break;
      case Role::kSelectionBias:
        router->selection_bias = vector(m, base);
        break;
      case Role::kTable:
        router->table =
            base == nullptr ? nullptr : reinterpret_cast<const int32_t*>(base + m.offset);
        break;
      case Role::kHead:
        out->head = view(m, base);
        break;
      case Role::kHeadBias:
        out->head_bias = vector(m, base);
        break;
      case Role::kMerge:
        out->merge = view(m, base);
        break;
      case Role::kMergeBias:
        out->merge_bias = vector(m, base);
        break;
      default:
        break;
    }
  }
}

void bind_expert(const BlobLayout& layout, const uint8_t* base, const Norm& like, Ffn* out) {
  for (const BlobMatrix& m : layout.matrices) {
    Ffn* ffn = out + (m.sublayer < 0 ? 0 : m.sublayer);
    switch (m.role) {
      case Role::kNorm:
        set_weight(m, base, like, &ffn->in_norm);
        break;
      case Role::kNormBias:
        ffn->in_norm.bias = vector(m, base);
        break;
      default:
        bind_network(m, base, like, ffn);
    }
  }
}

}  // namespace moe
