#include "src/convert/slot.h"

#include "formats/import/failure.h"
#include "src/model/tensors.h"

namespace moe {
namespace {

constexpr int64_t kMaxExpertBlocks = 262'144;  // of a whole model; keeps the list below 300 MB

// The tensor of a role in the research layout, behind "layers.L.", "layers.L.ffn." and so on.
const char* role_name(Role role) {
  switch (role) {
    case Role::kWeight:
      return ".weight";
    case Role::kBias:
      return ".bias";
    case Role::kNorm:
      return "norm.weight";
    case Role::kNormBias:
      return "norm.bias";
    case Role::kQ:
      return "q.weight";
    case Role::kK:
      return "k.weight";
    case Role::kV:
      return "v.weight";
    case Role::kO:
      return "o.weight";
    case Role::kQBias:
      return "q.bias";
    case Role::kKBias:
      return "k.bias";
    case Role::kVBias:
      return "v.bias";
    case Role::kOBias:
      return "o.bias";
    case Role::kQNorm:
      return "q_norm.weight";
    case Role::kKNorm:
      return "k_norm.weight";
    case Role::kSinks:
      return "sinks";
    case Role::kSubNorm:
      return "sub_norm.weight";
    case Role::kSubNormBias:
      return "sub_norm.bias";
    case Role::kGate:
      return "gate.weight";
    case Role::kUp:
      return "up.weight";
    case Role::kDown:
      return "down.weight";
    case Role::kGateBias:
      return "gate.bias";
    case Role::kUpBias:
      return "up.bias";
    case Role::kDownBias:
      return "down.bias";
    case Role::kSharedGate:
      return "router.weight";
    case Role::kScores:
      return "router.weight";
    case Role::kProj:
      return "router.proj.weight";
    case Role::kProjBias:
      return "router.proj.bias";
    case Role::kExpertEmbedding:
      return "router.embedding.weight";
    case Role::kSelectionBias:
      return "router.selection_bias";
    case Role::kTable:
      return "router.table";
    case Role::kHead:
      return "head.weight";
    case Role::kHeadBias:
      return "head.bias";
    case Role::kMerge:
      return "merge.weight";
    case Role::kMergeBias:
      return "merge.bias";
    case Role::kLatent:
      return "latent.weight";
    case Role::kLatentNorm:
      return "latent_norm.weight";
    case Role::kKRope:
      return "k_rope.weight";
  }
  return "";
}

std::string layer_prefix(const ModelConfig& config, Part part, int32_t layer, int32_t expert,
                         const TensorSpec& spec) {
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  const bool norm = spec.role == Role::kNorm || spec.role == Role::kNormBias;
  switch (part) {
    case Part::kAttention:
      return prefix + (norm ? "attention_" : "attention.");
    case Part::kFfn:
      if (norm) return prefix + "ffn_";
      return prefix + (config.layers[static_cast<size_t>(layer)].ffn.kind == FfnKind::kMoe
                           ? "moe.shared."
                           : "ffn.");
    case Part::kRouter:
      return prefix + (spec.role == Role::kBias ? "moe.router" : "moe.");
    default: {
      const std::string own = prefix + "moe.experts." + std::to_string(expert) + ".";
      return spec.sublayer < 0 ? own : own + std::to_string(spec.sublayer) + ".";
    }
  }
}

SlotKind slot_kind(Part part, const TensorSpec& spec) {
  if (spec.kind == TensorKind::kVector) return SlotKind::kVector;
  if (spec.kind == TensorKind::kIds) return SlotKind::kTable;
  if (part == Part::kPositionEmbedding || spec.kind == TensorKind::kF32Input)
    return SlotKind::kExact;
  return part == Part::kEmbedding || part == Part::kHead ? SlotKind::kVocab : SlotKind::kLinear;
}

class Lister {
 public:
  Lister(const ModelConfig& config, const std::vector<int32_t>& cosine_widths)
      : config_(config), cosine_widths_(cosine_widths) {}

  std::vector<SlotGroup> list() {
    group(Part::kEmbedding);
    group(Part::kPositionEmbedding);
    group(Part::kEmbeddingNorm);
    for (int32_t l = 0; l < config_.n_layers(); ++l) {
      group(Part::kAttention, l);
      group(Part::kFfn, l);
      group(Part::kRouter, l);
      if (!has_part(config_, Part::kExperts, l)) continue;
      const MoeConfig& moe = config_.layers[static_cast<size_t>(l)].ffn.moe;
      for (int32_t e = 0; e < moe.n_experts; ++e) group(Part::kExperts, l, e);
    }
    group(Part::kFinalNorm);
    group(Part::kHead);
    return std::move(groups_);
  }

 private:
  void group(Part part, int32_t layer = -1, int32_t expert = -1) {
    if (!has_part(config_, part, layer)) return;
    check(part_tensors(config_, part, layer, &specs_));
    SlotGroup group{part, layer, expert, {}};
    const auto l = static_cast<size_t>(layer);
    const int32_t d_e = layer >= 0 && l < cosine_widths_.size() ? cosine_widths_[l] : 0;
    for (const TensorSpec& spec : specs_) {
      Slot slot;
      slot.role = spec.role;
      slot.sublayer = spec.sublayer;
      slot.kind = slot_kind(part, spec);
      slot.rows = spec.rows == 0 ? d_e : spec.rows;
      slot.cols = spec.cols == 0 ? d_e : spec.cols;
      slot.optional = !spec.required;
      if (slot.kind == SlotKind::kTable) slot.limit = config_.layers[l].ffn.moe.n_experts;
      slot.name =
          layer < 0 ? name_in(kParts, part) : layer_prefix(config_, part, layer, expert, spec);
      slot.name += role_name(spec.role);
      group.slots.push_back(std::move(slot));
    }
    groups_.push_back(std::move(group));
  }

  const ModelConfig& config_;
  const std::vector<int32_t>& cosine_widths_;
  Array<TensorSpec> specs_;
  std::vector<SlotGroup> groups_;
};

}  // namespace

std::string Slot::short_name() const {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

std::vector<SlotGroup> list_slots(const ModelConfig& config,
                                  const std::vector<int32_t>& cosine_widths) {
  int64_t n_blocks = 0;
  for (const LayerConfig& layer : config.layers) {
    const MoeConfig& m = layer.ffn.moe;
    if (layer.ffn.kind == FfnKind::kMoe) n_blocks += int64_t{m.n_experts} * (m.n_sublayers + 1);
  }
  if (n_blocks > kMaxExpertBlocks) {
    fail(MOE_ERR_RANGE, "config.json: %lld experts in all layers, at most %lld are accepted",
         static_cast<long long>(n_blocks), static_cast<long long>(kMaxExpertBlocks));
  }
  return Lister(config, cosine_widths).list();
}

}  // namespace moe
