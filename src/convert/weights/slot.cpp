// SPDX-License-Identifier: MIT
// Lists the slots of each layer, part by part, with the names that rules match.
#include "src/convert/weights/slot.h"

#include "formats/import/failure.h"
#include "src/model/tensors.h"

namespace moe {
namespace {

constexpr int64_t kMaxExpertBlocks = 262'144;  // of a whole model; limits the list to 300 MB

std::string slot_name(const ModelConfig& config, Part part, int32_t layer, int32_t expert,
                      const TensorSpec& spec) {
  if (layer < 0) return spec.name;
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  if (!spec.of_network) return prefix + spec.name;
  const FfnConfig& ffn = config.layers[static_cast<size_t>(layer)].ffn;
  if (ffn.kind == FfnKind::kDense) return prefix + "ffn." + spec.name;
  if (part == Part::kFfn) return prefix + "moe.shared." + spec.name;
  const std::string block = spec.sublayer < 0 ? "" : std::to_string(spec.sublayer) + ".";
  return prefix + "moe.experts." + std::to_string(expert) + "." + block + spec.name;
}

SlotKind slot_kind(Part part, const TensorSpec& spec) {
  if (spec.kind == TensorKind::kIds) return SlotKind::kTable;
  if (!is_matrix(spec.kind)) return SlotKind::kVector;
  if (part == Part::kPositionEmbedding || part == Part::kSecondPositions ||
      part == Part::kSourcePositions || spec.kind == TensorKind::kF32Input)
    return SlotKind::kExact;
  const bool vocab =
      part == Part::kEmbedding ||
      ((part == Part::kHead || part == Part::kLayerInputs) && spec.role == Role::kWeight);
  return vocab ? SlotKind::kVocab : SlotKind::kLinear;
}

class Lister {
 public:
  Lister(const ModelConfig& config, const std::vector<int32_t>& cosine_widths)
      : config_(config), cosine_widths_(cosine_widths) {}

  std::vector<SlotGroup> list() {
    group(Part::kEmbedding);
    group(Part::kPositionEmbedding);
    group(Part::kSecondPositions);
    group(Part::kEmbeddingNorm);
    group(Part::kSourcePositions);
    group(Part::kSourceEmbeddingNorm);
    group(Part::kLayerInputs);
    for (int32_t l = 0; l < config_.n_layers(); ++l) {
      group(Part::kAttention, l);
      group(Part::kMixer, l);
      group(Part::kCrossAttention, l);
      group(Part::kLayerInput, l);
      group(Part::kPrediction, l);
      group(Part::kFfn, l);
      group(Part::kRouter, l);
      if (!has_part(config_, Part::kExperts, l)) continue;
      const MoeConfig& moe = config_.layers[static_cast<size_t>(l)].ffn.moe;
      for (int32_t e = 0; e < moe.n_experts; ++e) group(Part::kExperts, l, e);
    }
    group(Part::kEncoderNorm);
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
      slot.optional = !spec.required();
      slot.norm = is_norm(spec.kind);
      if (slot.kind == SlotKind::kTable) slot.limit = config_.layers[l].ffn.moe.n_experts;
      slot.name = slot_name(config_, part, layer, expert, spec);
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
