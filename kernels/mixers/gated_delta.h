// SPDX-License-Identifier: MIT
#pragma once
// The gated delta rule of Qwen3-Next, Qwen3.5 and OLMo Hybrid (Gated DeltaNet, arXiv 2412.06464):
// kernels/mixers/delta_rule.h is the definition.

#include "kernels/mixers/delta_rule.h"

namespace moe {

struct GatedDeltaMixer {
  enum Param { kKeyHeads, kValueHeads, kKeyDim, kValueDim, kLength, kEps, kBetaScale };
  enum Weight { kQ, kK, kV, kZ, kB, kA, kQConv, kKConv, kVConv, kDtBias, kALog, kNorm, kOut };

  static constexpr MOE_HD DeltaSizes sizes(const MixerConfig& c) {
    return {c.count(kKeyHeads), c.count(kValueHeads), c.count(kKeyDim), c.count(kValueDim),
            c.count(kLength)};
  }
  static constexpr int64_t keys(const MixerConfig& c, int32_t) { return sizes(c).keys(); }
  static constexpr int64_t values(const MixerConfig& c, int32_t) { return sizes(c).values(); }
  static constexpr int64_t heads(const MixerConfig& c, int32_t) { return c.count(kValueHeads); }
  // Convolutions are (length, channels), that of the oldest token first.
  static constexpr int64_t key_taps(const MixerConfig& c, int32_t d) {
    return keys(c, d) * c.count(kLength);
  }
  static constexpr int64_t value_taps(const MixerConfig& c, int32_t d) {
    return values(c, d) * c.count(kLength);
  }
  static constexpr int64_t value_dim(const MixerConfig& c, int32_t) { return c.count(kValueDim); }

  static constexpr MixerInfo info = {
      .name = "gated_delta",
      .params = {{.name = "key_heads", .low = 1, .high = DeltaSizes::kMaxHeads},
                 {.name = "value_heads", .low = 1, .high = DeltaSizes::kMaxHeads},
                 {.name = "key_dim", .low = 1, .high = DeltaSizes::kMaxDim},
                 {.name = "value_dim", .low = 1, .high = DeltaSizes::kMaxDim},
                 {.name = "length", .low = 1, .high = Convolution::kMaxTaps},
                 {.name = "eps",
                  .low = 0,
                  .high = 1,
                  .whole = false,
                  .required = false,
                  .fallback = 1e-6f},
                 {.name = "beta_scale",
                  .low = 0,
                  .high = 2,
                  .whole = false,
                  .required = false,
                  .fallback = 1}},
      .weights = {{"gated_delta.q.weight", MixerUse::kIn, keys},
                  {"gated_delta.k.weight", MixerUse::kIn, keys},
                  {"gated_delta.v.weight", MixerUse::kIn, values},
                  {"gated_delta.z.weight", MixerUse::kIn, values},
                  {"gated_delta.b.weight", MixerUse::kIn, heads},
                  {"gated_delta.a.weight", MixerUse::kIn, heads},
                  {"gated_delta.q_conv.weight", MixerUse::kVector, key_taps},
                  {"gated_delta.k_conv.weight", MixerUse::kVector, key_taps},
                  {"gated_delta.v_conv.weight", MixerUse::kVector, value_taps},
                  {"gated_delta.dt_bias", MixerUse::kVector, heads},
                  {"gated_delta.a_log", MixerUse::kVector, heads},
                  {"gated_delta.norm.weight", MixerUse::kVector, value_dim},
                  {"gated_delta.out.weight", MixerUse::kOut, values}},
      .state = [](const MixerConfig& c, int32_t) { return sizes(c).state(); },
      .units = heads,
      .work = [](const MixerConfig& c, int32_t) { return sizes(c).work(); },
      .wrong = [](const MixerConfig& c) -> const char* {
        if (c.count(kValueHeads) % c.count(kKeyHeads) == 0) return nullptr;
        return "value_heads is not a multiple of key_heads";
      },
  };

  template <class Isa>
  static MOE_HD_CALL int32_t run(const MixerArgs& args) {
    DeltaRule<Isa> rule;
    rule.sizes = sizes(args.config);
    rule.eps = args.config.params[kEps];
    rule.beta_scale = args.config.params[kBetaScale];
    rule.z = rule.sizes.channels();
    rule.b = rule.z + rule.sizes.values();
    rule.a = rule.b + rule.sizes.value_heads;
    rule.q_conv = args.vectors[kQConv];
    rule.k_conv = args.vectors[kKConv];
    rule.v_conv = args.vectors[kVConv];
    rule.dt_bias = args.vectors[kDtBias];
    rule.a_log = args.vectors[kALog];
    rule.norm = args.vectors[kNorm];
    return rule.run(args);
  }
};

}  // namespace moe
