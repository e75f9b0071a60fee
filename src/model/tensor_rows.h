// SPDX-License-Identifier: MIT
#pragma once
// Every tensor that a model can have beside the weights of mixers, one row each: part and role,
// kind, shape, name in the research layout, and the field that it fills. A new tensor is a row here
// (and, if new, a word in MOE_ROLES).

#include <cstddef>

#include "src/model/model.h"
#include "src/model/tensors.h"

namespace moe {

/// Dimensions of the tensors of one part. 0: the model has no tensor with this dimension.
struct PartSizes {
  static constexpr int32_t kInFile = -1;  // defined by the file

  int32_t one = 1;  // columns of a vector
  int32_t vocab = 0;
  int32_t context = 0;
  int32_t source = 0;
  int32_t d_model = 0;
  // Norms: of the part itself or before a block, of a block's output, of a block's sum, before the
  // last matrix. Only a LayerNorm may have a bias.
  int32_t norm = 0, norm_bias = 0;
  int32_t out_norm = 0, out_norm_bias = 0;
  int32_t post_norm = 0, post_norm_bias = 0;
  int32_t sub_norm = 0, sub_norm_bias = 0;
  // The model's head.
  int32_t head_dense = 0;  // d_model
  int32_t head_norm = 0, head_norm_bias = 0;
  int32_t head_rows = 0;  // n_outputs, unless the embedding is the matrix
  int32_t outputs = 0, tied_outputs = 0;
  // Attention.
  int32_t q = 0;      // n_heads * head_dim
  int32_t q_in = 0;   // d_model or q_latent
  int32_t kv = 0;     // n_kv_heads * head_dim, unless another layer's keys are used
  int32_t v = 0;      // the same, unless values are keys
  int32_t kv_in = 0;  // d_model or latent
  int32_t latent = 0, latent_out = 0, rope_dims = 0;
  int32_t q_latent = 0;
  int32_t q_norm = 0, k_norm = 0;
  int32_t in_norm = 0, gate_in_norm = 0;  // of the inputs of single matrices: d_model
  int32_t sinks = 0;
  int32_t output_gate = 0;  // q if there is one
  // Networks.
  int32_t layer_input = 0, layer_inputs = 0;  // of one layer, of all
  int32_t d_in = 0;
  int32_t d_ff = 0;
  int32_t gate = 0;  // d_ff if gated
  int32_t shared_gate = 0;
  int32_t apart = 0;  // d_model if the shared expert and the experts have norms of their own
  // Routers; each the length of its tensor.
  int32_t scores = 0, score_bias = 0, selection_bias = 0;
  int32_t d_e = 0, embeddings = 0;
  int32_t table = 0;
  int32_t expert_scale = 0;     // n_experts if there is one
  int32_t head = 0, merge = 0;  // d_model if present
};

struct TensorRow {
  uint32_t parts;  // bits 1 << Part
  Role role;
  TensorKind kind;
  int32_t PartSizes::*rows;
  int32_t PartSizes::*cols;
  const char* name;  // in the research layout: the full name, or the part after "layers.L." or the
                     // network's prefix
  /// Offset of a Matrix, a Norm or a pointer (see `kind`) in ModelWeights, LayerWeights,
  /// MixerWeights or a network's Ffn.
  uint16_t field;

  constexpr bool in(Part part) const { return (parts >> static_cast<unsigned>(part) & 1) != 0; }
  /// The Ffn of a dense layer, a shared expert or an expert.
  constexpr bool of_network() const { return in(Part::kExperts); }
};

namespace tensor_rows {

constexpr uint32_t bit(Part part) { return uint32_t{1} << static_cast<unsigned>(part); }

using K = TensorKind;
using S = PartSizes;
using R = Role;
inline constexpr uint32_t kEmbedding = bit(Part::kEmbedding);
inline constexpr uint32_t kPositions = bit(Part::kPositionEmbedding);
inline constexpr uint32_t kSecondPositions = bit(Part::kSecondPositions);
inline constexpr uint32_t kEmbeddingNorm = bit(Part::kEmbeddingNorm);
inline constexpr uint32_t kSourcePositions = bit(Part::kSourcePositions);
inline constexpr uint32_t kSourceEmbeddingNorm = bit(Part::kSourceEmbeddingNorm);
inline constexpr uint32_t kEncoderNorm = bit(Part::kEncoderNorm);
inline constexpr uint32_t kFinalNorm = bit(Part::kFinalNorm);
inline constexpr uint32_t kHead = bit(Part::kHead);
inline constexpr uint32_t kLayerInputs = bit(Part::kLayerInputs);
inline constexpr uint32_t kLayerInput = bit(Part::kLayerInput);
inline constexpr uint32_t kPrediction = bit(Part::kPrediction);
inline constexpr uint32_t kAttention = bit(Part::kAttention);
inline constexpr uint32_t kMixer = bit(Part::kMixer);
inline constexpr uint32_t kCross = bit(Part::kCrossAttention);
inline constexpr uint32_t kFfn = bit(Part::kFfn);
inline constexpr uint32_t kRouter = bit(Part::kRouter);
inline constexpr uint32_t kExperts = bit(Part::kExperts);
inline constexpr uint32_t kNetwork = kFfn | kExperts;

// clang-format off
#define MODEL(field) offsetof(ModelWeights, field)
#define LAYER(field) offsetof(LayerWeights, field)
#define MIXER(field) offsetof(MixerWeights, field)
#define FFN(field) offsetof(Ffn, field)

/// In the order in which the tensors of a part are stored.
inline constexpr TensorRow kAll[] = {
    {kEmbedding, R::kWeight, K::kMatrix, &S::vocab, &S::d_model, "embedding.weight", MODEL(embedding)},
    {kPositions, R::kWeight, K::kMatrix, &S::context, &S::d_model, "position_embedding.weight", MODEL(position_embedding)},
    {kSecondPositions, R::kWeight, K::kMatrix, &S::context, &S::d_model, "second_position_embedding.weight", MODEL(second_positions)},
    {kEmbeddingNorm, R::kWeight, K::kNorm, &S::norm, &S::one, "embedding_norm.weight", MODEL(embedding_norm)},
    {kEmbeddingNorm, R::kBias, K::kBias, &S::norm_bias, &S::one, "embedding_norm.bias", MODEL(embedding_norm.bias)},
    {kSourcePositions, R::kWeight, K::kMatrix, &S::source, &S::d_model, "source_position_embedding.weight", MODEL(source_positions)},
    {kSourceEmbeddingNorm, R::kWeight, K::kNorm, &S::norm, &S::one, "source_embedding_norm.weight", MODEL(source_embedding_norm)},
    {kSourceEmbeddingNorm, R::kBias, K::kBias, &S::norm_bias, &S::one, "source_embedding_norm.bias", MODEL(source_embedding_norm.bias)},
    {kEncoderNorm, R::kWeight, K::kNorm, &S::norm, &S::one, "encoder_norm.weight", MODEL(encoder_norm)},
    {kEncoderNorm, R::kBias, K::kBias, &S::norm_bias, &S::one, "encoder_norm.bias", MODEL(encoder_norm.bias)},
    {kFinalNorm, R::kWeight, K::kNorm, &S::norm, &S::one, "final_norm.weight", MODEL(final_norm)},
    {kFinalNorm, R::kBias, K::kBias, &S::norm_bias, &S::one, "final_norm.bias", MODEL(final_norm.bias)},
    {kHead, R::kDense, K::kMatrix, &S::head_dense, &S::d_model, "head.dense.weight", MODEL(transformed_head.up)},
    {kHead, R::kDenseBias, K::kBias, &S::head_dense, &S::one, "head.dense.bias", MODEL(transformed_head.up_bias)},
    {kHead, R::kNorm, K::kNorm, &S::head_norm, &S::one, "head.norm.weight", MODEL(transformed_head.sub_norm)},
    {kHead, R::kNormBias, K::kBias, &S::head_norm_bias, &S::one, "head.norm.bias", MODEL(transformed_head.sub_norm.bias)},
    {kHead, R::kWeight, K::kMatrix, &S::head_rows, &S::d_model, "head.weight", MODEL(head)},
    {kHead, R::kBias, K::kBias, &S::outputs, &S::one, "head.bias", MODEL(head_bias)},
    {kHead, R::kTiedBias, K::kVector, &S::tied_outputs, &S::one, "head.tied_bias", MODEL(head_bias)},

    {kAttention, R::kNorm, K::kNorm, &S::norm, &S::one, "attention_norm.weight", LAYER(attention.norms.pre)},
    {kAttention, R::kNormBias, K::kBias, &S::norm_bias, &S::one, "attention_norm.bias", LAYER(attention.norms.pre.bias)},
    {kAttention, R::kQ, K::kMatrix, &S::q, &S::q_in, "attention.q.weight", LAYER(attention.q)},
    {kAttention, R::kK, K::kMatrix, &S::kv, &S::kv_in, "attention.k.weight", LAYER(attention.k)},
    {kAttention, R::kV, K::kMatrix, &S::v, &S::kv_in, "attention.v.weight", LAYER(attention.v)},
    {kAttention, R::kO, K::kMatrix, &S::d_model, &S::q, "attention.o.weight", LAYER(attention.o)},
    {kAttention, R::kLatent, K::kMatrix, &S::latent_out, &S::d_model, "attention.latent.weight", LAYER(attention.latent)},
    {kAttention, R::kLatentNorm, K::kRmsNorm, &S::latent, &S::one, "attention.latent_norm.weight", LAYER(attention.latent_norm)},
    {kAttention, R::kKRope, K::kF32Input, &S::kv, &S::rope_dims, "attention.k_rope.weight", LAYER(attention.k_rope)},
    {kAttention, R::kQLatent, K::kMatrix, &S::q_latent, &S::d_model, "attention.q_latent.weight", LAYER(attention.q_latent)},
    {kAttention, R::kQLatentNorm, K::kRmsNorm, &S::q_latent, &S::one, "attention.q_latent_norm.weight", LAYER(attention.q_latent_norm)},
    {kAttention, R::kQBias, K::kBias, &S::q, &S::one, "attention.q.bias", LAYER(attention.q_bias)},
    {kAttention, R::kKBias, K::kBias, &S::kv, &S::one, "attention.k.bias", LAYER(attention.k_bias)},
    {kAttention, R::kVBias, K::kBias, &S::v, &S::one, "attention.v.bias", LAYER(attention.v_bias)},
    {kAttention, R::kOBias, K::kBias, &S::d_model, &S::one, "attention.o.bias", LAYER(attention.o_bias)},
    {kAttention, R::kQNorm, K::kNorm, &S::q_norm, &S::one, "attention.q_norm.weight", LAYER(attention.q_norm)},
    {kAttention, R::kKNorm, K::kNorm, &S::k_norm, &S::one, "attention.k_norm.weight", LAYER(attention.k_norm)},
    {kAttention, R::kSubNorm, K::kNorm, &S::sub_norm, &S::one, "attention.sub_norm.weight", LAYER(attention.sub_norm)},
    {kAttention, R::kSubNormBias, K::kBias, &S::sub_norm_bias, &S::one, "attention.sub_norm.bias", LAYER(attention.sub_norm.bias)},
    {kAttention, R::kQInNorm, K::kRmsNorm, &S::in_norm, &S::one, "attention.q_in_norm.weight", LAYER(attention.q_in_norm)},
    {kAttention, R::kKInNorm, K::kRmsNorm, &S::in_norm, &S::one, "attention.k_in_norm.weight", LAYER(attention.k_in_norm)},
    {kAttention, R::kVInNorm, K::kRmsNorm, &S::in_norm, &S::one, "attention.v_in_norm.weight", LAYER(attention.v_in_norm)},
    {kAttention, R::kSinks, K::kVector, &S::sinks, &S::one, "attention.sinks", LAYER(attention.sinks)},
    {kAttention, R::kOutputGate, K::kMatrix, &S::output_gate, &S::d_model, "attention.output_gate.weight", LAYER(attention.output_gate)},
    {kAttention, R::kOutputGateBias, K::kBias, &S::output_gate, &S::one, "attention.output_gate.bias", LAYER(attention.output_gate_bias)},
    {kAttention, R::kOutNorm, K::kNorm, &S::out_norm, &S::one, "attention_out_norm.weight", LAYER(attention.norms.out)},
    {kAttention, R::kOutNormBias, K::kBias, &S::out_norm_bias, &S::one, "attention_out_norm.bias", LAYER(attention.norms.out.bias)},
    {kAttention, R::kPostNorm, K::kNorm, &S::post_norm, &S::one, "attention_post_norm.weight", LAYER(attention.norms.post)},
    {kAttention, R::kPostNormBias, K::kBias, &S::post_norm_bias, &S::one, "attention_post_norm.bias", LAYER(attention.norms.post.bias)},

    {kMixer, R::kNorm, K::kNorm, &S::norm, &S::one, "mixer_norm.weight", MIXER(norms.pre)},
    {kMixer, R::kNormBias, K::kBias, &S::norm_bias, &S::one, "mixer_norm.bias", MIXER(norms.pre.bias)},
    {kMixer, R::kOutNorm, K::kNorm, &S::out_norm, &S::one, "mixer_out_norm.weight", MIXER(norms.out)},
    {kMixer, R::kOutNormBias, K::kBias, &S::out_norm_bias, &S::one, "mixer_out_norm.bias", MIXER(norms.out.bias)},
    {kMixer, R::kPostNorm, K::kNorm, &S::post_norm, &S::one, "mixer_post_norm.weight", MIXER(norms.post)},
    {kMixer, R::kPostNormBias, K::kBias, &S::post_norm_bias, &S::one, "mixer_post_norm.bias", MIXER(norms.post.bias)},

    {kCross, R::kNorm, K::kNorm, &S::norm, &S::one, "cross_attention_norm.weight", LAYER(cross.norms.pre)},
    {kCross, R::kNormBias, K::kBias, &S::norm_bias, &S::one, "cross_attention_norm.bias", LAYER(cross.norms.pre.bias)},
    {kCross, R::kQ, K::kMatrix, &S::q, &S::d_model, "cross_attention.q.weight", LAYER(cross.q)},
    {kCross, R::kK, K::kMatrix, &S::kv, &S::d_model, "cross_attention.k.weight", LAYER(cross.k)},
    {kCross, R::kV, K::kMatrix, &S::v, &S::d_model, "cross_attention.v.weight", LAYER(cross.v)},
    {kCross, R::kO, K::kMatrix, &S::d_model, &S::q, "cross_attention.o.weight", LAYER(cross.o)},
    {kCross, R::kQBias, K::kBias, &S::q, &S::one, "cross_attention.q.bias", LAYER(cross.q_bias)},
    {kCross, R::kKBias, K::kBias, &S::kv, &S::one, "cross_attention.k.bias", LAYER(cross.k_bias)},
    {kCross, R::kVBias, K::kBias, &S::v, &S::one, "cross_attention.v.bias", LAYER(cross.v_bias)},
    {kCross, R::kOBias, K::kBias, &S::d_model, &S::one, "cross_attention.o.bias", LAYER(cross.o_bias)},
    {kCross, R::kOutNorm, K::kNorm, &S::out_norm, &S::one, "cross_attention_out_norm.weight", LAYER(cross.norms.out)},
    {kCross, R::kOutNormBias, K::kBias, &S::out_norm_bias, &S::one, "cross_attention_out_norm.bias", LAYER(cross.norms.out.bias)},
    {kCross, R::kPostNorm, K::kNorm, &S::post_norm, &S::one, "cross_attention_post_norm.weight", LAYER(cross.norms.post)},
    {kCross, R::kPostNormBias, K::kBias, &S::post_norm_bias, &S::one, "cross_attention_post_norm.bias", LAYER(cross.norms.post.bias)},

    {kLayerInputs, R::kWeight, K::kMatrix, &S::vocab, &S::layer_inputs, "layer_inputs.weight", MODEL(layer_inputs)},
    {kLayerInputs, R::kProj, K::kMatrix, &S::layer_inputs, &S::d_model, "layer_inputs.proj.weight", MODEL(layer_projection)},
    {kLayerInputs, R::kNorm, K::kRmsNorm, &S::layer_input, &S::one, "layer_inputs.norm.weight", MODEL(layer_projection_norm)},
    {kLayerInput, R::kGate, K::kMatrix, &S::layer_input, &S::d_model, "layer_input.in.weight", LAYER(input_gate)},
    {kLayerInput, R::kDown, K::kMatrix, &S::d_model, &S::layer_input, "layer_input.out.weight", LAYER(input_down)},
    {kLayerInput, R::kOutNorm, K::kRmsNorm, &S::d_model, &S::one, "layer_input_out_norm.weight", LAYER(input_out_norm)},

    {kPrediction, R::kNextNorm, K::kRmsNorm, &S::d_model, &S::one, "prediction.next_norm.weight", LAYER(prediction.next_norm)},
    {kPrediction, R::kNext, K::kMatrix, &S::d_model, &S::d_model, "prediction.next.weight", LAYER(prediction.next)},
    {kPrediction, R::kHiddenNorm, K::kRmsNorm, &S::d_model, &S::one, "prediction.hidden_norm.weight", LAYER(prediction.hidden_norm)},
    {kPrediction, R::kHidden, K::kMatrix, &S::d_model, &S::d_model, "prediction.hidden.weight", LAYER(prediction.hidden)},
    {kPrediction, R::kNorm, K::kRmsNorm, &S::d_model, &S::one, "prediction.norm.weight", LAYER(prediction.norm)},

    {kFfn, R::kNorm, K::kNorm, &S::norm, &S::one, "ffn_norm.weight", LAYER(ffn_norms.pre)},
    {kFfn, R::kNormBias, K::kBias, &S::norm_bias, &S::one, "ffn_norm.bias", LAYER(ffn_norms.pre.bias)},
    {kExperts, R::kNorm, K::kNorm, &S::norm, &S::one, "norm.weight", FFN(in_norm)},
    {kExperts, R::kNormBias, K::kBias, &S::norm_bias, &S::one, "norm.bias", FFN(in_norm.bias)},
    {kNetwork, R::kGate, K::kMatrix, &S::gate, &S::d_in, "gate.weight", FFN(gate)},
    {kNetwork, R::kUp, K::kMatrix, &S::d_ff, &S::d_in, "up.weight", FFN(up)},
    {kNetwork, R::kDown, K::kMatrix, &S::d_in, &S::d_ff, "down.weight", FFN(down)},
    {kNetwork, R::kGateBias, K::kBias, &S::gate, &S::one, "gate.bias", FFN(gate_bias)},
    {kNetwork, R::kUpBias, K::kBias, &S::d_ff, &S::one, "up.bias", FFN(up_bias)},
    {kNetwork, R::kDownBias, K::kBias, &S::d_in, &S::one, "down.bias", FFN(down_bias)},
    {kNetwork, R::kSubNorm, K::kNorm, &S::sub_norm, &S::one, "sub_norm.weight", FFN(sub_norm)},
    {kNetwork, R::kSubNormBias, K::kBias, &S::sub_norm_bias, &S::one, "sub_norm.bias", FFN(sub_norm.bias)},
    {kFfn, R::kSharedGate, K::kF32Input, &S::shared_gate, &S::d_model, "moe.shared.router.weight", LAYER(shared_gate)},
    {kFfn, R::kGateInNorm, K::kRmsNorm, &S::gate_in_norm, &S::one, "ffn.gate_in_norm.weight", LAYER(gate_in_norm)},
    {kFfn, R::kUpInNorm, K::kRmsNorm, &S::in_norm, &S::one, "ffn.up_in_norm.weight", LAYER(up_in_norm)},
    {kFfn, R::kOutNorm, K::kNorm, &S::out_norm, &S::one, "ffn_out_norm.weight", LAYER(ffn_norms.out)},
    {kFfn, R::kOutNormBias, K::kBias, &S::out_norm_bias, &S::one, "ffn_out_norm.bias", LAYER(ffn_norms.out.bias)},
    {kFfn, R::kPostNorm, K::kNorm, &S::post_norm, &S::one, "ffn_post_norm.weight", LAYER(ffn_norms.post)},
    {kFfn, R::kPostNormBias, K::kBias, &S::post_norm_bias, &S::one, "ffn_post_norm.bias", LAYER(ffn_norms.post.bias)},
    {kFfn, R::kSharedOutNorm, K::kRmsNorm, &S::apart, &S::one, "moe.shared.out_norm.weight", LAYER(shared_out_norm)},
    {kFfn, R::kExpertsNorm, K::kRmsNorm, &S::apart, &S::one, "moe.experts_norm.weight", LAYER(experts_norm)},
    {kFfn, R::kExpertsOutNorm, K::kRmsNorm, &S::apart, &S::one, "moe.experts_out_norm.weight", LAYER(experts_out_norm)},

    {kRouter, R::kNorm, K::kRmsNorm, &S::norm, &S::one, "moe.router.norm.weight", LAYER(router_norm)},
    {kRouter, R::kProj, K::kF32Input, &S::d_e, &S::d_in, "moe.router.proj.weight", LAYER(router.proj)},
    {kRouter, R::kProjBias, K::kBias, &S::d_e, &S::one, "moe.router.proj.bias", LAYER(router.proj_bias)},
    {kRouter, R::kExpertEmbedding, K::kF32Input, &S::embeddings, &S::d_e, "moe.router.embedding.weight", LAYER(router.embedding)},
    {kRouter, R::kTable, K::kIds, &S::table, &S::one, "moe.router.table", LAYER(router.table)},
    {kRouter, R::kScores, K::kF32Input, &S::scores, &S::d_in, "moe.router.weight", LAYER(router.scores)},
    {kRouter, R::kBias, K::kBias, &S::score_bias, &S::one, "moe.router.bias", LAYER(router.bias)},
    {kRouter, R::kSelectionBias, K::kBias, &S::selection_bias, &S::one, "moe.router.selection_bias", LAYER(router.selection_bias)},
    {kRouter, R::kExpertScale, K::kVector, &S::expert_scale, &S::one, "moe.expert_scale", LAYER(expert_scale)},
    {kRouter, R::kHead, K::kMatrix, &S::head, &S::d_model, "moe.head.weight", LAYER(head)},
    {kRouter, R::kHeadBias, K::kBias, &S::head, &S::one, "moe.head.bias", LAYER(head_bias)},
    {kRouter, R::kMerge, K::kMatrix, &S::merge, &S::d_model, "moe.merge.weight", LAYER(merge)},
    {kRouter, R::kMergeBias, K::kBias, &S::merge, &S::one, "moe.merge.bias", LAYER(merge_bias)},
};
#undef MODEL
#undef LAYER
#undef MIXER
#undef FFN
// clang-format on

constexpr bool each_once() {
  for (const TensorRow& a : kAll) {
    for (const TensorRow& b : kAll) {
      if (&a != &b && a.role == b.role && (a.parts & b.parts) != 0) return false;
    }
  }
  return true;
}
static_assert(each_once(), "two rows with one part and role");

constexpr TensorKind kind_of(MixerUse use) {
  if (is_matrix(use)) return K::kMatrix;
  return use == MixerUse::kVector ? K::kVector : K::kBias;
}

struct MixerTensorRows {
  TensorRow rows[kAllMixerWeights + 1];  // the last one is no tensor
};
constexpr MixerTensorRows mixer_rows() {
  MixerTensorRows all = {};
  for (size_t m = 0; m < kMixers; ++m) {
    for (int w = 0; w < kMixerRows[m].n_weights(); ++w) {
      const MixerWeight& weight = kMixerRows[m].weights[w];
      const auto i = static_cast<size_t>(w);
      const size_t field = is_matrix(weight.use)
                               ? offsetof(MixerWeights, matrices) + i * sizeof(Matrix)
                               : offsetof(MixerWeights, vectors) + i * sizeof(float*);
      all.rows[first_weight(m) + w] = {
          kMixer,      mixer_role(kMixerRows[m].kind, w), kind_of(weight.use), nullptr, nullptr,
          weight.name, static_cast<uint16_t>(field)};
    }
  }
  return all;
}

/// The weights of all mixers: by role, from Role::kFirstMixer on. Their shapes are in MixerInfo.
inline constexpr MixerTensorRows kOfMixers = mixer_rows();

}  // namespace tensor_rows

/// Null if there is no such tensor.
constexpr const TensorRow* find_row(Part part, Role role) {
  if (role >= Role::kFirstMixer) {
    if (part != Part::kMixer) return nullptr;
    return &tensor_rows::kOfMixers.rows[static_cast<size_t>(role) - kNamedRoles];
  }
  for (const TensorRow& row : tensor_rows::kAll) {
    if (row.role == role && row.in(part)) return &row;
  }
  return nullptr;
}

}  // namespace moe
