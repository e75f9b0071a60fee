// SPDX-License-Identifier: MIT
#pragma once
// Lightning attention (Qin et al. 2024, arXiv 2401.04658) as in MiniMax-Text-01 and M1: linear
// attention that forgets at a fixed rate. For each head h
//
//   q, k, v = the head's parts of silu(q), silu(k), silu(v)
//   o_h = recurrence of keys k, queries q, values v, decay e^-(e^a_log) and rate 1
//   out = o / rms(o) * weight * sigmoid(z), the norm over all heads together
//
// The state of a layer is the matrices of all heads, one after the other.

#include "kernels/mixers/gates.h"
#include "kernels/mixers/info.h"
#include "kernels/mixers/recurrent_block.h"

namespace moe {

struct LightningMixer {
  static constexpr int kMaxHeads = 1024;
  enum Param { kHeads, kHeadDim, kEps };
  enum Weight { kQ, kK, kV, kZ, kALog, kNorm, kOut };

  static constexpr MOE_HD int64_t heads(const MixerConfig& c, int32_t) { return c.count(kHeads); }
  static constexpr MOE_HD int64_t inner(const MixerConfig& c, int32_t d) {
    return heads(c, d) * c.count(kHeadDim);
  }

  static constexpr MixerInfo info = {
      .name = "lightning",
      .params = {{.name = "heads", .low = 1, .high = kMaxHeads},
                 {.name = "head_dim", .low = 1, .high = RecurrentBlock::kMaxDim},
                 {.name = "eps",
                  .low = 0,
                  .high = 1,
                  .whole = false,
                  .required = false,
                  .fallback = 1e-6f}},
      .weights = {{"lightning.q.weight", MixerUse::kIn, inner},
                  {"lightning.k.weight", MixerUse::kIn, inner},
                  {"lightning.v.weight", MixerUse::kIn, inner},
                  {"lightning.z.weight", MixerUse::kIn, inner},
                  {"lightning.a_log", MixerUse::kVector, heads},
                  {"lightning.norm.weight", MixerUse::kVector, inner},
                  {"lightning.out.weight", MixerUse::kOut, inner}},
      .state = [](const MixerConfig& c, int32_t d) { return inner(c, d) * c.count(kHeadDim); },
      .units = heads,
      .work =
          [](const MixerConfig& c, int32_t) {
            const int64_t d = c.count(kHeadDim);
            return (3 * d + 48) * d;
          },
      .finishes = true,
  };

  /// Units are heads.
  template <class Isa>
  static MOE_HD_CALL int32_t run(const MixerArgs& args) {
    OfUnit<Isa, RecurrentBlock> memory;
    RecurrentBlock& block = memory.get();
    const int32_t d = args.config.count(kHeadDim);
    int32_t bad = kMixerFinite;
    for (int64_t h = args.begin; h < args.end; ++h) {
      const float decay = exp_float(0 - exp_float(args.vectors[kALog][h]));
      for (int32_t i = group_of<Isa>(); i < RecurrentBlock::kTokens; i += group_count<Isa>()) {
        block.decay[i] = decay;
        block.rate[i] = 1;
      }
      for (int32_t first = 0; first < args.n_rows; first += RecurrentBlock::kTokens) {
        const int32_t left = args.n_rows - first;
        const int32_t n = left < RecurrentBlock::kTokens ? left : RecurrentBlock::kTokens;
        prepare<Isa>(args, h, first, n, block);
        const Recurrence r = block.recurrence(args, first, n, d, d, h * d * d, h * d);
        wait_for_groups<Isa>();
        run_recurrence<Isa, false>(r);
        wait_for_groups<Isa>();
        for (int32_t i = group_of<Isa>(); i < n && first + i < bad; i += group_count<Isa>()) {
          if (!all_finite<Isa>(r.out + i * r.ld_out, d)) bad = first + i;
        }
      }
    }
    return bad;
  }

  /// Norms and gates the outputs of row r, which all heads share.
  template <class Isa>
  static MOE_HD_CALL void finish(const MixerArgs& args, int32_t r) {
    const auto n = static_cast<int>(inner(args.config, args.d_model));
    const float* const z = args.in + r * args.ld_in + int64_t{3} * n;
    gated_norm<Isa, true, RowOf::kAll>(args.out + r * args.ld_out, args.vectors[kNorm], z, n,
                                       args.config.params[kEps]);
  }

 private:
  // Queries, keys and values of the block's tokens.
  template <class Isa>
  static MOE_HD_CALL void prepare(const MixerArgs& args, int64_t h, int32_t first, int32_t n,
                                  RecurrentBlock& block) {
    const int32_t d = args.config.count(kHeadDim);
    const int64_t width = inner(args.config, args.d_model);
    for (int32_t i = 0; i < n; ++i) {
      const float* const in = args.in + (first + i) * args.ld_in + h * d;
      silu_of<Isa>(in, d, block.query + i * d);
      silu_of<Isa>(in + width, d, block.key + i * d);
      silu_of<Isa>(in + 2 * width, d, block.value + i * d);
    }
  }
};

}  // namespace moe
