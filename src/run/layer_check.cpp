// SPDX-License-Identifier: MIT
// Checks the description of a single layer: sizes, required and superfluous weights, activation,
// router, format.

#include "kernels/router/table.h"
#include "quant/formats.h"
#include "src/base/format.h"
#include "src/base/inline.h"
#include "src/model/names.h"
#include "src/run/layer_parts.h"

namespace moe {
namespace {

constexpr int32_t kMaxSize = 65536;  // limit of input width of integer matrices, experts and rows

Status check_size(const char* field, int32_t found, int32_t low = 1) {
  if (found >= low && found <= kMaxSize) return {};
  return Status::error(MOE_ERR_RANGE, "layer: %s: expected %d..%d, found %d", field, low, kMaxSize,
                       found);
}

Status check_given(const char* field, bool given, bool wanted) {
  if (given == wanted) return {};
  return Status::error(MOE_ERR_ARGUMENT, "layer: %s is %s", field,
                       wanted ? "required, but null" : "given, but not used here");
}

Status check_activation(const ActivationConfig& act) {
  if (static_cast<size_t>(act.kind) >= std::size(kActivations)) {
    return Status::error(MOE_ERR_ARGUMENT, "layer: unknown activation %d",
                         static_cast<int>(act.kind));
  }
  if (!is_finite(act.alpha) || !is_finite(act.limit) || act.limit < 0 ||
      !is_finite(act.up_offset)) {
    return Status::error(MOE_ERR_RANGE,
                         "layer: alpha, limit and up_offset must be finite, limit "
                         "at least 0");
  }
  return {};
}

Status check_expert(const char* name, const ExpertWeights& e, bool gated) {
  if (e.up == nullptr || e.down == nullptr) {
    return Status::error(MOE_ERR_ARGUMENT, "layer: %s: up and down are required, but null", name);
  }
  if ((e.gate != nullptr) != gated) {
    return Status::error(MOE_ERR_ARGUMENT, "layer: %s: all experts need a gate, or none", name);
  }
  if (e.gate_bias != nullptr && e.gate == nullptr) {
    return Status::error(MOE_ERR_ARGUMENT, "layer: %s: gate_bias without gate", name);
  }
  return {};
}

Status check_experts(const LayerSpec& spec) {
  if (spec.experts.size() != static_cast<size_t>(spec.n_experts)) {
    return Status::error(MOE_ERR_SHAPE, "layer: experts: expected %d, found %zu", spec.n_experts,
                         spec.experts.size());
  }
  const bool gated = spec.experts[0].gate != nullptr;
  for (size_t e = 0; e < spec.experts.size(); ++e) {
    char name[32];
    format(name, sizeof name, "expert %zu", e);
    MOE_TRY(check_expert(name, spec.experts[e], gated));
  }
  if (spec.shared_d_ff == 0) return check_given("shared_gate", spec.shared_gate != nullptr, false);
  MOE_TRY(check_size("shared_d_ff", spec.shared_d_ff));
  return check_expert("shared expert", spec.shared, gated);
}

Status check_router(const LayerSpec& spec) {
  MOE_TRY(validate_router(spec.router, spec.n_experts).with_context("layer"));
  const RouterInfo& info = router_info(spec.router);
  const bool table = info.scores == RouterScores::kTable;
  const bool cosine = info.scores == RouterScores::kCosine;
  MOE_TRY(check_given("router_weight", spec.router_weight != nullptr, !table));
  MOE_TRY(check_given("router_proj", spec.router_proj != nullptr, cosine));
  MOE_TRY(check_given("router_table", spec.router_table != nullptr, table));
  if (!info.bias) MOE_TRY(check_given("router_bias", spec.router_bias != nullptr, false));
  if (!cosine) MOE_TRY(check_given("router_proj_bias", spec.router_proj_bias != nullptr, false));
  if (cosine) MOE_TRY(check_size("d_e", spec.d_e));
  if (!table) return {};
  if (spec.vocab_size < 1) {
    return Status::error(MOE_ERR_RANGE, "layer: vocab_size: expected at least 1, found %d",
                         spec.vocab_size);
  }
  for (int32_t t = 0; t < spec.vocab_size; ++t) {
    if (spec.router_table[t] >= 0 && spec.router_table[t] < spec.n_experts) continue;
    return Status::error(MOE_ERR_RANGE, "layer: router_table[%d]: expected 0..%d, found %d", t,
                         spec.n_experts - 1, spec.router_table[t]);
  }
  return {};
}

Status check_format(const LayerSpec& spec) {
  const auto n_formats = sizeof kWeightFormats / sizeof kWeightFormats[0];
  const bool known = static_cast<size_t>(spec.format) < n_formats;
  if (!known || !format_info(spec.format).can_round()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "layer: unsupported weight format, expected %s",
                         weight_format_names());
  }
  const WeightFormat& format = format_info(spec.format);
  const char* const others = activations_instead(format, spec.precision);
  if (others != nullptr) {
    return Status::error(MOE_ERR_UNSUPPORTED, "layer: %s weights need %s activations", format.name,
                         others);
  }
  return {};
}

}  // namespace

Status check_layer_spec(const LayerSpec& spec) {
  MOE_TRY(check_size("d_model", spec.d_model));
  MOE_TRY(check_size("d_ff", spec.d_ff));
  MOE_TRY(check_size("n_experts", spec.n_experts));
  MOE_TRY(check_size("n_subheads", spec.n_subheads));
  MOE_TRY(check_size("max_rows", spec.max_rows));
  if (spec.d_model % spec.n_subheads != 0) {
    return Status::error(MOE_ERR_SHAPE, "layer: n_subheads %d does not divide d_model %d",
                         spec.n_subheads, spec.d_model);
  }
  if (!(spec.norm_eps > 0 && spec.norm_eps <= 1)) {
    return Status::error(MOE_ERR_RANGE, "layer: norm_eps: expected above 0, at most 1");
  }
  MOE_TRY(check_activation(spec.act));
  MOE_TRY(check_format(spec));
  MOE_TRY(check_router(spec));
  MOE_TRY(check_experts(spec));
  if (spec.head == nullptr) MOE_TRY(check_given("head_bias", spec.head_bias != nullptr, false));
  if (spec.merge != nullptr) return {};
  return check_given("merge_bias", spec.merge_bias != nullptr, false);
}

}  // namespace moe
