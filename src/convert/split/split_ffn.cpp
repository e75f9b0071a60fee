// SPDX-License-Identifier: MIT
// Replaces the configuration and the sources of each FFN's tensors by those of its experts.
#include "src/convert/split/split_ffn.h"

#include <algorithm>
#include <numeric>

#include "formats/import/failure.h"
#include "src/convert/split/clusters.h"
#include "src/convert/weights/row_reader.h"

namespace moe {
namespace {

constexpr int32_t kRowsPerLook = 64;

std::string put_name(int32_t layer, const char* what) {
  return "split.layers." + std::to_string(layer) + "." + what;
}

const Slot* find_slot(const SlotGroup& group, Role role) {
  for (const Slot& slot : group.slots) {
    if (slot.role == role) return &slot;
  }
  return nullptr;
}

// Matrices whose rows (gate, up and their biases) or columns (down) are neurons.
enum class Neurons { kRows, kColumns, kNone };

Neurons neurons_of(Role role) {
  switch (role) {
    case Role::kGate:
    case Role::kUp:
    case Role::kGateBias:
    case Role::kUpBias:
      return Neurons::kRows;
    case Role::kDown:
      return Neurons::kColumns;
    default:
      return Neurons::kNone;
  }
}

void check_layer(const FfnConfig& ffn, int32_t layer, int32_t n_experts) {
  if (ffn.kind != FfnKind::kDense) {
    fail(MOE_ERR_UNSUPPORTED, "split: layer %d has %d experts already; a dense checkpoint is split",
         layer, ffn.moe.n_experts);
  }
  if (ffn.in_norms) {
    fail(MOE_ERR_UNSUPPORTED,
         "split: the gate and up projections of layer %d have norms of their own, which experts "
         "here have not",
         layer);
  }
  if (ffn.sub_norm) {
    fail(MOE_ERR_UNSUPPORTED,
         "split: layer %d has a norm over all %d inner neurons, which parts of them cannot take",
         layer, ffn.d_ff);
  }
  if (ffn.d_ff % n_experts != 0) {
    fail(MOE_ERR_ARGUMENT, "split: %d experts do not divide the %d inner neurons of layer %d",
         n_experts, ffn.d_ff, layer);
  }
}

MoeConfig moe_of(int32_t n_experts, bool output_bias) {
  MoeConfig m;
  m.n_experts = n_experts;
  m.router.kind = RouterKind::kThreshold;
  m.router.threshold = 1;
  m.router.weights = RouterWeights::kOne;
  m.shared.d_ff = output_bias ? 1 : 0;
  return m;
}

// Rules for an FFN also apply to its experts.
std::vector<PrecisionRule> with_experts(const std::vector<PrecisionRule>& rules) {
  constexpr std::string_view kFfn = ".ffn.";
  std::vector<PrecisionRule> out;
  for (const PrecisionRule& rule : rules) {
    out.push_back(rule);
    const size_t at = rule.match.find(kFfn);
    if (at == std::string::npos) continue;
    out.push_back(rule);
    out.back().match.replace(at, kFfn.size(), ".moe.experts.*.");
  }
  return out;
}

// The source of a tensor that is not in the checkpoint.
Source put_source(const SlotGroup& group, const Slot& slot) {
  const char* what = slot.role == Role::kScores                                ? "router.weight"
                     : slot.role == Role::kBias && group.part == Part::kRouter ? "router.bias"
                     : slot.role == Role::kUp                                  ? "shared.up"
                     : slot.role == Role::kGate                                ? "shared.gate"
                     : slot.role == Role::kDown                                ? "shared.down"
                                                                               : nullptr;
  return what == nullptr ? Source{} : Source{.tensor = put_name(group.layer, what)};
}

}  // namespace

SplitFfn::SplitFfn(const SplitOptions& options, const Imported& dense, Checkpoint& checkpoint)
    : options_(options), dense_(dense), checkpoint_(checkpoint) {
  if (options.n_experts < 2) {
    fail(MOE_ERR_ARGUMENT, "split: expected 2 experts or more, found %d", options.n_experts);
  }
  if (dense.config.rotation.block > 0) {
    fail(MOE_ERR_UNSUPPORTED,
         "split: the matrices read rotated inputs, of which an expert would need all");
  }
  for (SlotGroup& group : list_slots(dense.config, dense.cosine_widths)) {
    if (group.layer < 0) continue;
    const LayerConfig& layer = dense.config.layers[static_cast<size_t>(group.layer)];
    if (!layer.has_ffn) continue;
    check_layer(layer.ffn, group.layer, options.n_experts);
    if (options.clusters) {
      check_clusters(layer.ffn.d_ff, dense.config.d_model, options.n_experts, machine_share());
    }
    if (group.part == Part::kFfn) add_layer(std::move(group));
  }
  if (layers_->empty()) fail(MOE_ERR_UNSUPPORTED, "split: the model has no FFN");
  for (const auto& [index, layer] : *layers_) put_tensors(index, layer);
}

void SplitFfn::add_layer(SlotGroup ffn) {
  const FfnConfig& config = dense_.config.layers[static_cast<size_t>(ffn.layer)].ffn;
  Layer& layer = (*layers_)[ffn.layer];
  layer.d_ff = config.d_ff;
  layer.gated = config.gated;
  if (const Slot* bias = find_slot(ffn, Role::kDownBias)) {
    const Source source = dense_.locate(ffn, *bias);
    layer.output_bias = !source.tensor.empty() && checkpoint_.find(source.tensor) != nullptr;
  }
  layer.ffn = std::move(ffn);
  const int32_t n = layer.d_ff / options_.n_experts;
  for (int32_t e = 0; e < options_.n_experts; ++e) {
    layer.neurons.push_back(std::make_shared<std::vector<int32_t>>(n));
    std::iota(layer.neurons.back()->begin(), layer.neurons.back()->end(), e * n);
  }
}

void SplitFfn::put_tensors(int32_t index, const Layer& layer) {
  const int32_t d = dense_.config.d_model;
  const auto put = [&](const char* what, int32_t rows, int32_t cols) {
    std::vector<int64_t> shape = {rows};
    if (cols > 0) shape.push_back(cols);
    const auto n = static_cast<size_t>(rows) * static_cast<size_t>(std::max(cols, 1));
    checkpoint_.put_tensor(put_name(index, what), std::move(shape), std::vector<float>(n));
  };
  put("router.weight", options_.n_experts, d);
  put("router.bias", options_.n_experts, 0);
  if (!layer.output_bias) return;
  put("shared.up", 1, d);
  put("shared.down", d, 1);
  if (layer.gated) put("shared.gate", 1, d);
}

void SplitFfn::apply(Imported* imported) const {
  imported->precision = with_experts(imported->precision);
  for (const auto& [index, layer] : *layers_) {
    FfnConfig& ffn = imported->config.layers[static_cast<size_t>(index)].ffn;
    ffn.kind = FfnKind::kMoe;
    ffn.d_ff = layer.d_ff / options_.n_experts;
    ffn.moe = moe_of(options_.n_experts, layer.output_bias);
  }
  imported->locate = [layers = layers_, dense = dense_.locate](const SlotGroup& group,
                                                               const Slot& slot) -> Source {
    const auto found = layers->find(group.layer);
    const bool expert = group.part == Part::kExperts;
    if (found == layers->end() ||
        (!expert && group.part != Part::kFfn && group.part != Part::kRouter)) {
      return dense(group, slot);
    }
    const Layer& layer = found->second;
    const Neurons neurons = neurons_of(slot.role);
    // The output bias belongs to the shared expert.
    if (expert ? neurons == Neurons::kNone
               : neurons != Neurons::kNone || group.part == Part::kRouter) {
      return put_source(group, slot);
    }
    const Slot* whole = find_slot(layer.ffn, slot.role);
    if (whole == nullptr) return {};
    Source source = dense(layer.ffn, *whole);
    if (!expert) return source;
    const SourcePick pick = {layer.d_ff, layer.neurons[static_cast<size_t>(group.expert)]};
    (neurons == Neurons::kRows ? source.rows : source.cols) = pick;
    return source;
  };
}

// The neurons' input weights.
std::vector<float> SplitFfn::first_matrix(const Layer& layer,
                                          const std::function<void()>& look) const {
  const Slot& slot = *find_slot(layer.ffn, layer.gated ? Role::kGate : Role::kUp);
  const Source source = dense_.locate(layer.ffn, slot);
  RowReader reader(checkpoint_, *checkpoint_.find(source.tensor), source, slot.rows, slot.cols);
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>(slot.rows) * static_cast<size_t>(slot.cols));
  for (int32_t r = 0; r < slot.rows; ++r) {
    if (r % kRowsPerLook == 0) look();
    const float* row = reader.row(r);
    rows.insert(rows.end(), row, row + slot.cols);
  }
  return rows;
}

NeuronGroups SplitFfn::group_neurons(int32_t index, const Layer& layer, ThreadPool& pool,
                                     const std::function<void()>& look) const {
  NeuronGroups out{index, options_.n_experts, {}};
  if (options_.clusters) {
    out.group = balanced_clusters(first_matrix(layer, look), dense_.config.d_model,
                                  options_.n_experts, pool, look);
  } else {
    out.group = groups_in_order(layer.d_ff, options_.n_experts);
  }
  for (const auto& neurons : layer.neurons) neurons->clear();
  for (int32_t i = 0; i < layer.d_ff; ++i) {
    layer.neurons[static_cast<size_t>(out.group[static_cast<size_t>(i)])]->push_back(i);
  }
  return out;
}

SplitReport SplitFfn::fit(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                          const CalibrationText& text, ThreadPool& pool,
                          const std::function<void()>& look, const ReadingProgress& progress) {
  std::vector<NeuronGroups> groups;
  for (const auto& [index, layer] : *layers_) {
    groups.push_back(group_neurons(index, layer, pool, look));
  }
  RouterFits fits = fit_routers(file, n_bytes, plan, text, groups, 0, pool, look, progress);
  SplitReport report{options_.n_experts,
                     options_.clusters,
                     groups.size(),
                     text.tokens.size(),
                     fits.perplexity,
                     fits.n_passes,
                     0};
  for (size_t i = 0; i < groups.size(); ++i) {
    FittedRouter& router = fits.routers[i];
    report.explained += router.explained / static_cast<double>(groups.size());
    checkpoint_.fill_tensor(put_name(groups[i].layer, "router.weight"), std::move(router.weight));
    checkpoint_.fill_tensor(put_name(groups[i].layer, "router.bias"), std::move(router.bias));
  }
  return report;
}

}  // namespace moe
