// SPDX-License-Identifier: MIT
// Finds mixers by name, checks their parameters, adds up their widths, and words their fault.
#include "kernels/mixers/table.h"

namespace moe {

const MixerInfo* find_mixer(std::string_view name) {
  for (size_t m = 0; m < kMixers; ++m) {
    if (name == kMixerRows[m].name) return &kMixerRows[m];
  }
  return nullptr;
}

int find_param(const MixerInfo& info, std::string_view name) {
  for (int i = 0; i < info.n_params(); ++i) {
    if (name == info.params[i].name) return i;
  }
  return -1;
}

MixerConfig default_mixer(const MixerInfo& info) {
  MixerConfig config;
  config.kind = info.kind;
  for (int i = 0; i < info.n_params(); ++i) config.params[i] = info.params[i].fallback;
  return config;
}

Status validate_mixer(const MixerConfig& config) {
  const MixerInfo& info = mixer_info(config);
  for (int i = 0; i < info.n_params(); ++i) {
    const MixerParam& param = info.params[i];
    const float v = config.params[i];
    const bool in_range = v >= param.low && v <= param.high;  // also that it is a number
    if (in_range && (!param.whole || v == static_cast<float>(config.count(i)))) continue;
    return Status::error(MOE_ERR_RANGE, "%s: %s: expected %s%g..%g, found %g", info.name,
                         param.name, param.whole ? "a whole number in " : "",
                         static_cast<double>(param.low), static_cast<double>(param.high),
                         static_cast<double>(v));
  }
  const char* const wrong = info.wrong != nullptr ? info.wrong(config) : nullptr;
  if (wrong != nullptr) return Status::error(MOE_ERR_ARGUMENT, "%s: %s", info.name, wrong);
  return {};
}

Status mixer_not_finite(MixerKind kind, int32_t layer, int32_t position) {
  return Status::error(MOE_ERR_NON_FINITE,
                       "layer %d: the state of %s is not finite after the token at position %d",
                       layer, mixer_info(kind).name, position);
}

MixerWidths mixer_widths(const MixerConfig& config, int32_t d_model) {
  const MixerInfo& info = mixer_info(config);
  MixerWidths widths;
  for (int i = 0; i < info.n_weights(); ++i) {
    const MixerWeight& weight = info.weights[i];
    if (weight.use == MixerUse::kIn) widths.in += weight.n(config, d_model);
    if (weight.use == MixerUse::kOut) widths.out = weight.n(config, d_model);
  }
  return widths;
}

}  // namespace moe
