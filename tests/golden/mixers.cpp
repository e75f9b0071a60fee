// SPDX-License-Identifier: MIT
// Token mixers with a state.

#include "kernels/mixers/table.h"
#include "tests/golden/golden.h"

namespace moe::golden {
namespace {

MixerConfig config_of(const MixerInfo& info, const Case& c) {
  MixerConfig config = default_mixer(info);
  for (int i = 0; i < info.n_params(); ++i) {
    const MixerParam& param = info.params[i];
    config.params[i] = static_cast<float>(c.real(param.name, param.fallback));
  }
  return config;
}

/// Runs a mixer with `vectors`, by weight: a name in the case, or null.
void run_mixer(const char* mixer, const char* const* vectors, const Case& c, Devices& devices,
               Outcome& outcome) {
  const MixerConfig config = config_of(*find_mixer(mixer), c);
  outcome.status = validate_mixer(config);
  if (!outcome.status.ok()) return;
  const MixerInfo& info = mixer_info(config);
  const Tensor x = c.in_tensor("x");
  const std::vector<float> in = x.floats();
  std::vector<std::vector<float>> values(kMaxMixerWeights);
  const float* pointers[kMaxMixerWeights] = {};
  for (int w = 0; w < info.n_weights(); ++w) {
    if (vectors[w] != nullptr)
      pointers[w] = (values[static_cast<size_t>(w)] = c.in_floats(vectors[w])).data();
  }
  const std::vector<float> before = c.has("state") ? c.in_floats("state") : std::vector<float>();
  const int64_t width = mixer_widths(config, 1).out, state = info.state(config, 1);
  const auto out = same_on_all(devices.kernels(), outcome, [&](const CpuKernels& k) {
    std::vector<float> results(static_cast<size_t>(x.rows() * width + state));
    MixerArgs args;
    args.config = config;
    args.d_model = 1;
    args.n_rows = x.rows();
    args.in = in.data();
    args.ld_in = x.cols();
    args.out = results.data();
    args.ld_out = width;
    args.vectors = pointers;
    args.from = before.empty() ? nullptr : before.data();
    args.to = results.data() + x.rows() * width;
    args.end = info.units(config, 1);
    if (k.mix(args) != kMixerFinite) outcome.problem = "the state is not finite";
    for (int32_t r = 0; r < args.n_rows; ++r) k.finish_mixed(args, r);
    return results;
  });
  const auto end = out.begin() + x.rows() * width;
  outcome.out["y"] = to_json(std::vector<float>(out.begin(), end), {x.rows(), width});
  outcome.out["state"] = to_json(std::vector<float>(end, out.end()), {state});
}

void run_gated_delta(const Case& c, Devices& devices, Outcome& outcome) {
  const char* vectors[kMaxMixerWeights] = {};
  vectors[GatedDeltaMixer::kQConv] = "q_conv";
  vectors[GatedDeltaMixer::kKConv] = "k_conv";
  vectors[GatedDeltaMixer::kVConv] = "v_conv";
  vectors[GatedDeltaMixer::kDtBias] = "dt_bias";
  vectors[GatedDeltaMixer::kALog] = "a_log";
  vectors[GatedDeltaMixer::kNorm] = "norm";
  run_mixer("gated_delta", vectors, c, devices, outcome);
}

void run_mamba2(const Case& c, Devices& devices, Outcome& outcome) {
  const char* vectors[kMaxMixerWeights] = {};
  vectors[Mamba2Mixer::kConv] = "conv";
  vectors[Mamba2Mixer::kConvBias] = "conv_bias";
  vectors[Mamba2Mixer::kDtBias] = "dt_bias";
  vectors[Mamba2Mixer::kALog] = "a_log";
  vectors[Mamba2Mixer::kD] = "d";
  vectors[Mamba2Mixer::kNorm] = "norm";
  run_mixer("mamba2", vectors, c, devices, outcome);
}

void run_lightning(const Case& c, Devices& devices, Outcome& outcome) {
  const char* vectors[kMaxMixerWeights] = {};
  vectors[LightningMixer::kALog] = "a_log";
  vectors[LightningMixer::kNorm] = "norm";
  run_mixer("lightning", vectors, c, devices, outcome);
}

}  // namespace

void add_mixers(Runners& runners) {
  runners["gated_delta"] = run_gated_delta;
  runners["mamba2"] = run_mamba2;
  runners["lightning"] = run_lightning;
}

}  // namespace moe::golden
