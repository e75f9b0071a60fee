// SPDX-License-Identifier: MIT
#pragma once
// The delta rule of Kimi Linear (Moonshot AI 2025, arXiv 2510.26692) and Ling 3 (inclusionAI 2026),
// with a decay for each key: kernels/mixers/delta_rule.h is the definition.

#include "kernels/mixers/delta_rule.h"

namespace moe {

struct KimiDeltaMixer {
  static constexpr int kMaxRank = 4096;
  enum Param { kHeads, kKeyDim, kValueDim, kLength, kRank, kEps, kDecayBound };
  enum Weight {
    kQ,
    kK,
    kV,
    kZ,
    kB,
    kA,
    kQConv,
    kKConv,
    kVConv,
    kZUp,
    kAUp,
    kDtBias,
    kALog,
    kNorm,
    kOut
  };

  static constexpr MOE_HD DeltaSizes sizes(const MixerConfig& c) {
    return {c.count(kHeads), c.count(kHeads), c.count(kKeyDim), c.count(kValueDim),
            c.count(kLength)};
  }
  static constexpr MOE_HD int64_t keys(const MixerConfig& c, int32_t) { return sizes(c).keys(); }
  static constexpr MOE_HD int64_t values(const MixerConfig& c, int32_t) {
    return sizes(c).values();
  }
  static constexpr int64_t heads(const MixerConfig& c, int32_t) { return c.count(kHeads); }
  static constexpr MOE_HD int64_t rank(const MixerConfig& c, int32_t) { return c.count(kRank); }
  // Outputs of the input matrices of a and z, which are the gates themselves if there is no rank.
  static constexpr int64_t a_in(const MixerConfig& c, int32_t d) {
    return rank(c, d) > 0 ? rank(c, d) : keys(c, d);
  }
  static constexpr MOE_HD int64_t z_in(const MixerConfig& c, int32_t d) {
    return rank(c, d) > 0 ? rank(c, d) : values(c, d);
  }
  // Convolutions are (length, channels), that of the oldest token first.
  static constexpr int64_t key_taps(const MixerConfig& c, int32_t d) {
    return keys(c, d) * c.count(kLength);
  }
  static constexpr int64_t value_taps(const MixerConfig& c, int32_t d) {
    return values(c, d) * c.count(kLength);
  }
  // (rank, keys) and (rank, values).
  static constexpr int64_t a_up(const MixerConfig& c, int32_t d) { return keys(c, d) * rank(c, d); }
  static constexpr int64_t z_up(const MixerConfig& c, int32_t d) {
    return values(c, d) * rank(c, d);
  }
  static constexpr int64_t value_dim(const MixerConfig& c, int32_t) { return c.count(kValueDim); }

  static constexpr MixerInfo info = {
      .name = "kimi_delta",
      .params =
          {{.name = "heads", .low = 1, .high = DeltaSizes::kMaxHeads},
           {.name = "key_dim", .low = 1, .high = DeltaSizes::kMaxDim},
           {.name = "value_dim", .low = 1, .high = DeltaSizes::kMaxDim},
           {.name = "length", .low = 1, .high = Convolution::kMaxTaps},
           {.name = "rank", .low = 0, .high = kMaxRank},
           {.name = "eps",
            .low = 0,
            .high = 1,
            .whole = false,
            .required = false,
            .fallback = 1e-5f},
           {.name = "decay_bound", .low = -1e6f, .high = 0, .whole = false, .required = false}},
      .weights = {{"kimi_delta.q.weight", MixerUse::kIn, keys},
                  {"kimi_delta.k.weight", MixerUse::kIn, keys},
                  {"kimi_delta.v.weight", MixerUse::kIn, values},
                  {"kimi_delta.z.weight", MixerUse::kIn, z_in},
                  {"kimi_delta.b.weight", MixerUse::kIn, heads},
                  {"kimi_delta.a.weight", MixerUse::kIn, a_in},
                  {"kimi_delta.q_conv.weight", MixerUse::kVector, key_taps},
                  {"kimi_delta.k_conv.weight", MixerUse::kVector, key_taps},
                  {"kimi_delta.v_conv.weight", MixerUse::kVector, value_taps},
                  {"kimi_delta.z_up.weight", MixerUse::kVector, z_up},
                  {"kimi_delta.a_up.weight", MixerUse::kVector, a_up},
                  {"kimi_delta.dt_bias", MixerUse::kVector, keys},
                  {"kimi_delta.a_log", MixerUse::kVector, heads},
                  {"kimi_delta.norm.weight", MixerUse::kVector, value_dim},
                  {"kimi_delta.out.weight", MixerUse::kOut, values}},
      .state = [](const MixerConfig& c, int32_t) { return sizes(c).state(); },
      .units = heads,
      .work =
          [](const MixerConfig& c, int32_t) {
            const DeltaSizes s = sizes(c);
            return s.work() + int64_t{c.count(kRank)} * (s.key_dim + s.value_dim);
          },
  };

  template <class Isa>
  static MOE_HD_CALL int32_t run(const MixerArgs& args) {
    DeltaRule<Isa, true> rule;
    rule.sizes = sizes(args.config);
    rule.eps = args.config.params[kEps];
    rule.rank = args.config.count(kRank);
    rule.decay_bound = args.config.params[kDecayBound];
    rule.z = rule.sizes.channels();
    rule.b = rule.z + z_in(args.config, args.d_model);
    rule.a = rule.b + rule.sizes.value_heads;
    rule.q_conv = args.vectors[kQConv];
    rule.k_conv = args.vectors[kKConv];
    rule.v_conv = args.vectors[kVConv];
    rule.z_up = args.vectors[kZUp];
    rule.a_up = args.vectors[kAUp];
    rule.dt_bias = args.vectors[kDtBias];
    rule.a_log = args.vectors[kALog];
    rule.norm = args.vectors[kNorm];
    return rule.run(args);
  }
};

}  // namespace moe
