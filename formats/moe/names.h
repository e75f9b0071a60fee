#pragma once
// The words of a model file: parts, roles, scales, activations, codecs. Numbers never leave memory,
// names go into files.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/format.h"

namespace moe {

/// One pair of a table of names. A table is in the order of its enum.
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

/// True when row i of the table is enum value i: name_in() relies on it.
template <class E, size_t n>
constexpr bool in_order(const Named<E> (&table)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<size_t>(table[i].value) != i) return false;
  }
  return true;
}

/// What one segment holds. The last four belong to a layer, kExperts to one expert of it.
enum class Part : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kEmbeddingNorm,
  kFinalNorm,
  kHead,
  kAttention,
  kFfn,     // norm in front of the feed-forward part, and the dense FFN or the shared expert
  kRouter,  // and MH-MoE's head and merge
  kExperts
};

inline constexpr Named<Part> kParts[] = {
    {Part::kEmbedding, "embedding"},
    {Part::kPositionEmbedding, "position_embedding"},
    {Part::kEmbeddingNorm, "embedding_norm"},
    {Part::kFinalNorm, "final_norm"},
    {Part::kHead, "head"},
    {Part::kAttention, "attention"},
    {Part::kFfn, "ffn"},
    {Part::kRouter, "router"},
    {Part::kExperts, "experts"},
};
static_assert(in_order(kParts));

constexpr bool part_has_layer(Part part) { return part >= Part::kAttention; }

/// What one matrix or vector is inside its part. Shapes: formats/README.md.
enum class Role : uint8_t {
  kWeight,
  kBias,
  kNorm,
  kNormBias,
  kQ,
  kK,
  kV,
  kO,
  kQBias,
  kKBias,
  kVBias,
  kOBias,
  kQNorm,
  kKNorm,
  kSinks,
  kSubNorm,
  kSubNormBias,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kSharedGate,
  kScores,
  kProj,
  kProjBias,
  kExpertEmbedding,
  kSelectionBias,
  kTable,
  kHead,
  kHeadBias,
  kMerge,
  kMergeBias,
  kLatent,
  kLatentNorm,
  kKRope
};

inline constexpr Named<Role> kRoles[] = {
    {Role::kWeight, "weight"},
    {Role::kBias, "bias"},
    {Role::kNorm, "norm"},
    {Role::kNormBias, "norm_bias"},
    {Role::kQ, "q"},
    {Role::kK, "k"},
    {Role::kV, "v"},
    {Role::kO, "o"},
    {Role::kQBias, "q_bias"},
    {Role::kKBias, "k_bias"},
    {Role::kVBias, "v_bias"},
    {Role::kOBias, "o_bias"},
    {Role::kQNorm, "q_norm"},
    {Role::kKNorm, "k_norm"},
    {Role::kSinks, "sinks"},
    {Role::kSubNorm, "sub_norm"},
    {Role::kSubNormBias, "sub_norm_bias"},
    {Role::kGate, "gate"},
    {Role::kUp, "up"},
    {Role::kDown, "down"},
    {Role::kGateBias, "gate_bias"},
    {Role::kUpBias, "up_bias"},
    {Role::kDownBias, "down_bias"},
    {Role::kSharedGate, "shared_gate"},
    {Role::kScores, "scores"},
    {Role::kProj, "proj"},
    {Role::kProjBias, "proj_bias"},
    {Role::kExpertEmbedding, "embedding"},
    {Role::kSelectionBias, "selection_bias"},
    {Role::kTable, "table"},
    {Role::kHead, "head"},
    {Role::kHeadBias, "head_bias"},
    {Role::kMerge, "merge"},
    {Role::kMergeBias, "merge_bias"},
    {Role::kLatent, "latent"},
    {Role::kLatentNorm, "latent_norm"},
    {Role::kKRope, "k_rope"},
};
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
};
static_assert(in_order(kActPrecisions));

enum class Codec : uint8_t { kNone, kZstd };

inline constexpr Named<Codec> kCodecs[] = {
    {Codec::kNone, "none"},
    {Codec::kZstd, "zstd"},
};
static_assert(in_order(kCodecs));

}  // namespace moe
