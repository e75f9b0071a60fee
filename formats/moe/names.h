// SPDX-License-Identifier: MIT
#pragma once
// Names in a model file: parts, roles, scales, activations, codecs. Files contain names, never enum
// values.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/mixers/table.h"
#include "quant/format.h"

namespace moe {

/// An enum value and its name. Tables are in the order of their enum.
template <class E>
struct Named {
  E value;
  const char* name;
};

template <class E, size_t n>
constexpr const char* name_in(const Named<E> (&table)[n], E value) {
  const size_t i = static_cast<size_t>(value);
  return i < n ? table[i].name : "?";
}

template <class E, size_t n>
constexpr bool parse_in(const Named<E> (&table)[n], std::string_view name, E* out) {
  for (const Named<E>& row : table) {
    if (name == row.name) {
      *out = row.value;
      return true;
    }
  }
  return false;
}

/// True if row i of the table is enum value i, as name_in() requires.
template <class E, size_t n>
constexpr bool in_order(const Named<E> (&table)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<size_t>(table[i].value) != i) return false;
  }
  return true;
}

/// Contents of a segment. From kAttention on they belong to a layer, kExperts to one expert. In an
/// encoder-decoder, source parts belong to the encoder and the others to the decoder.
enum class Part : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kSecondPositions,
  kEmbeddingNorm,
  kSourcePositions,
  kSourceEmbeddingNorm,
  kEncoderNorm,
  kFinalNorm,
  kHead,
  kLayerInputs,  // what each layer gets of a token: the table, and the projection with its norm
  kAttention,
  kMixer,
  kCrossAttention,
  kLayerInput,  // gate, down and norm of a layer's part of kLayerInputs
  kPrediction,  // what a layer that predicts further tokens has before and after its blocks
  kFfn,         // norm before the feed-forward part, and the dense FFN or the shared expert
  kRouter,      // including MH-MoE's head and merge
  kExperts
};

inline constexpr Named<Part> kParts[] = {
    {Part::kEmbedding, "embedding"},
    {Part::kPositionEmbedding, "position_embedding"},
    {Part::kSecondPositions, "second_position_embedding"},
    {Part::kEmbeddingNorm, "embedding_norm"},
    {Part::kSourcePositions, "source_position_embedding"},
    {Part::kSourceEmbeddingNorm, "source_embedding_norm"},
    {Part::kEncoderNorm, "encoder_norm"},
    {Part::kFinalNorm, "final_norm"},
    {Part::kHead, "head"},
    {Part::kLayerInputs, "layer_inputs"},
    {Part::kAttention, "attention"},
    {Part::kMixer, "mixer"},
    {Part::kCrossAttention, "cross_attention"},
    {Part::kLayerInput, "layer_input"},
    {Part::kPrediction, "prediction"},
    {Part::kFfn, "ffn"},
    {Part::kRouter, "router"},
    {Part::kExperts, "experts"},
};
static_assert(in_order(kParts));

constexpr bool part_has_layer(Part part) { return part >= Part::kAttention; }

/// Role of a matrix or vector in its part, and its name in a model file. src/model/tensor_rows.h
/// lists the tensors with shapes and names elsewhere.
// clang-format off
#define MOE_ROLES(ROLE) \
  ROLE(kWeight, "weight")                \
  ROLE(kBias, "bias")                    \
  ROLE(kNorm, "norm")                    \
  ROLE(kNormBias, "norm_bias")           \
  ROLE(kOutNorm, "out_norm")             \
  ROLE(kOutNormBias, "out_norm_bias")    \
  ROLE(kPostNorm, "post_norm")           \
  ROLE(kPostNormBias, "post_norm_bias")  \
  ROLE(kDense, "dense")                  \
  ROLE(kDenseBias, "dense_bias")         \
  ROLE(kQ, "q")                          \
  ROLE(kK, "k")                          \
  ROLE(kV, "v")                          \
  ROLE(kO, "o")                          \
  ROLE(kQBias, "q_bias")                 \
  ROLE(kKBias, "k_bias")                 \
  ROLE(kVBias, "v_bias")                 \
  ROLE(kOBias, "o_bias")                 \
  ROLE(kQNorm, "q_norm")                 \
  ROLE(kKNorm, "k_norm")                 \
  ROLE(kSinks, "sinks")                  \
  ROLE(kSubNorm, "sub_norm")             \
  ROLE(kSubNormBias, "sub_norm_bias")    \
  ROLE(kGate, "gate")                    \
  ROLE(kUp, "up")                        \
  ROLE(kDown, "down")                    \
  ROLE(kGateBias, "gate_bias")           \
  ROLE(kUpBias, "up_bias")               \
  ROLE(kDownBias, "down_bias")           \
  ROLE(kSharedGate, "shared_gate")       \
  ROLE(kScores, "scores")                \
  ROLE(kProj, "proj")                    \
  ROLE(kProjBias, "proj_bias")           \
  ROLE(kExpertEmbedding, "embedding")    \
  ROLE(kSelectionBias, "selection_bias") \
  ROLE(kTable, "table")                  \
  ROLE(kHead, "head")                    \
  ROLE(kHeadBias, "head_bias")           \
  ROLE(kMerge, "merge")                  \
  ROLE(kMergeBias, "merge_bias")         \
  ROLE(kLatent, "latent")                \
  ROLE(kLatentNorm, "latent_norm")       \
  ROLE(kKRope, "k_rope")                 \
  ROLE(kTiedBias, "tied_bias")           \
  ROLE(kQLatent, "q_latent")             \
  ROLE(kQLatentNorm, "q_latent_norm")    \
  ROLE(kOutputGate, "output_gate")       \
  ROLE(kOutputGateBias, "output_gate_bias") \
  ROLE(kExpertScale, "expert_scale")     \
  ROLE(kExpertsNorm, "experts_norm")     \
  ROLE(kExpertsOutNorm, "experts_out_norm") \
  ROLE(kSharedOutNorm, "shared_out_norm") \
  ROLE(kQInNorm, "q_in_norm")            \
  ROLE(kKInNorm, "k_in_norm")            \
  ROLE(kVInNorm, "v_in_norm")            \
  ROLE(kGateInNorm, "gate_in_norm")      \
  ROLE(kUpInNorm, "up_in_norm")          \
  ROLE(kNext, "next")                    \
  ROLE(kNextNorm, "next_norm")           \
  ROLE(kHidden, "hidden")                \
  ROLE(kHiddenNorm, "hidden_norm")
// clang-format on

enum class Role : uint8_t {
#define MOE_ROLE(role, name) role,
  MOE_ROLES(MOE_ROLE)
#undef MOE_ROLE
      kFirstMixer  // from here on: the weights of all mixers, in the order of kernels/mixers/list.h
};

inline constexpr size_t kNamedRoles = static_cast<size_t>(Role::kFirstMixer);
static_assert(kNamedRoles + kAllMixerWeights < 256);

/// The role of a mixer's weight, by its index in MixerInfo::weights.
constexpr Role mixer_role(MixerKind kind, int weight) {
  const int index = first_weight(static_cast<size_t>(kind)) + weight;
  return static_cast<Role>(kNamedRoles + static_cast<size_t>(index));
}

struct RoleNames {
  Named<Role> rows[kNamedRoles + kAllMixerWeights];
};
constexpr RoleNames role_names() {
  RoleNames all = {{
#define MOE_ROLE(role, name) {Role::role, name},
      MOE_ROLES(MOE_ROLE)
#undef MOE_ROLE
  }};
  for (size_t m = 0; m < kMixers; ++m) {
    for (int w = 0; w < kMixerRows[m].n_weights(); ++w) {
      const Role role = mixer_role(kMixerRows[m].kind, w);
      all.rows[static_cast<size_t>(role)] = {role, kMixerRows[m].weights[w].name};
    }
  }
  return all;
}
inline constexpr RoleNames kRoleNames = role_names();
inline constexpr auto& kRoles = kRoleNames.rows;
static_assert(in_order(kRoles));

inline constexpr Named<ScaleKind> kScaleKinds[] = {
    {ScaleKind::kNone, "none"},
    {ScaleKind::kTensor, "tensor"},
    {ScaleKind::kRow, "row"},
    {ScaleKind::kGroup, "group"},
};
static_assert(in_order(kScaleKinds));

inline constexpr Named<ActPrecision> kActPrecisions[] = {
    {ActPrecision::kF32, "f32"},
    {ActPrecision::kA8, "a8"},
    {ActPrecision::kA8Block, "a8_block"},
    {ActPrecision::kA8Group, "a8_group"},
};
static_assert(in_order(kActPrecisions));

enum class Codec : uint8_t { kNone, kZstd };

inline constexpr Named<Codec> kCodecs[] = {
    {Codec::kNone, "none"},
    {Codec::kZstd, "zstd"},
};
static_assert(in_order(kCodecs));

}  // namespace moe
