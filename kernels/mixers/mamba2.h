// SPDX-License-Identifier: MIT
#pragma once
// Mamba2 (Dao and Gu 2024, arXiv 2405.21060) of Granite 4 H, Nemotron-H and Falcon-H1: for each
// head h, with B and C of its group,
//
//   x, B, C = the head's and the group's parts of silu(convolution(xBC))
//   dt = softplus(dt_h + dt_bias), at least dt_low and at most dt_high
//   y_h = recurrence of keys B, queries C, values x, decay e^-(e^a_log dt), rate dt and skip D
//   out = y * silu(z), then, if there is a norm, group by group of the channels,
//   out / rms(out) * weight
//
// The state of a layer: the last inputs of the convolution, x, B and C side by side, then the
// matrices of the heads. Plain C headers only.

#include "kernels/mixers/convolution.h"
#include "kernels/mixers/gates.h"
#include "kernels/mixers/info.h"
#include "kernels/mixers/recurrent_block.h"

namespace moe {

struct Mamba2Sizes {
  int32_t heads = 0;     // a multiple of groups: each of these serves neighbouring ones
  int32_t head_dim = 0;  // 1..RecurrentBlock::kMaxDim
  int32_t groups = 0;
  int32_t state_dim = 0;  // the same
  int32_t n_taps = 0;

  static constexpr int kMaxHeads = 1024;
  static constexpr int kMaxDim = RecurrentBlock::kMaxDim;

  constexpr MOE_HD int64_t inner() const { return int64_t{heads} * head_dim; }
  constexpr MOE_HD int64_t channels() const { return inner() + int64_t{2} * groups * state_dim; }
  constexpr MOE_HD int64_t in() const { return inner() + channels() + heads; }  // z, x, B, C, dt
  constexpr MOE_HD int64_t matrix() const { return int64_t{state_dim} * head_dim; }
  constexpr MOE_HD int64_t history() const { return (n_taps - 1) * channels(); }
  constexpr MOE_HD int64_t state() const { return history() + heads * matrix(); }
  // Multiply-adds of a head for one token.
  constexpr MOE_HD int64_t work() const {
    return 3 * matrix() + (int64_t{2} * groups * state_dim / heads + head_dim) * (n_taps + 16);
  }
};

struct Mamba2Mixer {
  enum Param { kHeads, kHeadDim, kGroups, kStateDim, kLength, kDtLow, kDtHigh, kEps };
  enum Weight { kIn, kInBias, kConv, kConvBias, kDtBias, kALog, kD, kNorm, kOut, kOutBias };

  static constexpr MOE_HD Mamba2Sizes sizes(const MixerConfig& c) {
    return {c.count(kHeads), c.count(kHeadDim), c.count(kGroups), c.count(kStateDim),
            c.count(kLength)};
  }
  static constexpr int64_t in(const MixerConfig& c, int32_t) { return sizes(c).in(); }
  static constexpr int64_t inner(const MixerConfig& c, int32_t) { return sizes(c).inner(); }
  static constexpr int64_t channels(const MixerConfig& c, int32_t) { return sizes(c).channels(); }
  // (length, channels), that of the oldest token first.
  static constexpr int64_t taps(const MixerConfig& c, int32_t d) {
    return channels(c, d) * c.count(kLength);
  }
  static constexpr int64_t heads(const MixerConfig& c, int32_t) { return c.count(kHeads); }

  static constexpr MixerInfo info = {
      .name = "mamba2",
      .params = {{.name = "heads", .low = 1, .high = Mamba2Sizes::kMaxHeads},
                 {.name = "head_dim", .low = 1, .high = Mamba2Sizes::kMaxDim},
                 {.name = "groups", .low = 1, .high = Mamba2Sizes::kMaxHeads},
                 {.name = "state_dim", .low = 1, .high = Mamba2Sizes::kMaxDim},
                 {.name = "length", .low = 1, .high = Convolution::kMaxTaps},
                 {.name = "dt_low", .low = 0, .high = 1e30f, .whole = false, .required = false},
                 {.name = "dt_high",
                  .low = 0,
                  .high = 1e30f,
                  .whole = false,
                  .required = false,
                  .fallback = 1e30f},
                 {.name = "eps",
                  .low = 0,
                  .high = 1,
                  .whole = false,
                  .required = false,
                  .fallback = 1e-5f}},
      .weights = {{"mamba2.in.weight", MixerUse::kIn, in},
                  {"mamba2.in.bias", MixerUse::kInBias, in},
                  {"mamba2.conv.weight", MixerUse::kVector, taps},
                  {"mamba2.conv.bias", MixerUse::kBias, channels},
                  {"mamba2.dt_bias", MixerUse::kVector, heads},
                  {"mamba2.a_log", MixerUse::kVector, heads},
                  {"mamba2.d", MixerUse::kVector, heads},
                  {"mamba2.norm.weight", MixerUse::kBias, inner},
                  {"mamba2.out.weight", MixerUse::kOut, inner},
                  {"mamba2.out.bias", MixerUse::kOutBias,
                   [](const MixerConfig&, int32_t d) { return int64_t{d}; }}},
      .state = [](const MixerConfig& c, int32_t) { return sizes(c).state(); },
      .units = heads,
      .work = [](const MixerConfig& c, int32_t) { return sizes(c).work(); },
      .finishes = true,
      .wrong = [](const MixerConfig& c) -> const char* {
        if (c.count(kHeads) % c.count(kGroups) != 0) return "heads is not a multiple of groups";
        return c.params[kDtLow] <= c.params[kDtHigh] ? nullptr : "dt_low is above dt_high";
      },
  };

  /// Units are heads.
  template <class Isa>
  static MOE_HD_CALL int32_t run(const MixerArgs& args) {
    const Mamba2Sizes s = sizes(args.config);
    const int64_t group = s.heads / s.groups;
    int32_t bad = kMixerFinite;
    for (int64_t h = args.begin; h < args.end;) {
      const int64_t group_end = (h / group + 1) * group;
      const int64_t end = group_end < args.end ? group_end : args.end;
      const int32_t row = run_heads<Isa>(args, s, h, end);
      bad = row < bad ? row : bad;
      h = end;
    }
    return bad;
  }

  /// Gates and, if there is a norm, norms the outputs of row r, which all heads share.
  template <class Isa>
  static MOE_HD_CALL void finish(const MixerArgs& args, int32_t r) {
    const Mamba2Sizes s = sizes(args.config);
    if (args.vectors[kNorm] == nullptr) {
      return gate_alone<Isa>(args.out + r * args.ld_out, args.in + r * args.ld_in,
                             static_cast<int>(s.inner()));
    }
    const auto n = static_cast<int>(s.inner() / s.groups);
    for (int32_t g = 0; g < s.groups; ++g) {
      float* out = args.out + r * args.ld_out + int64_t{g} * n;
      const float* z = args.in + r * args.ld_in + int64_t{g} * n;
      gate_then_norm<Isa>(out, args.vectors[kNorm] + int64_t{g} * n, z, n,
                          args.config.params[kEps]);
    }
  }

 private:
  using Block = RecurrentBlock;
  static constexpr int kBlock = Block::kTokens;

  static MOE_HD Convolution convolution(const MixerArgs& args, const Mamba2Sizes& s) {
    Convolution c;
    c.n_taps = s.n_taps;
    c.n_channels = static_cast<int32_t>(s.channels());
    c.weight = args.vectors[kConv];
    c.bias = args.vectors[kConvBias];
    c.in = args.in + s.inner();
    c.ld_in = args.ld_in;
    c.from = args.from;
    c.ld_state = s.channels();
    return c;
  }

  // Heads of one group, which share B and C.
  template <class Isa>
  static MOE_HD_CALL int32_t run_heads(const MixerArgs& args, const Mamba2Sizes& s, int64_t begin,
                                       int64_t end) {
    OfUnit<Isa, Block> memory;
    Block& block = memory.get();
    const Convolution c = convolution(args, s);
    const int64_t b = s.inner() + begin / (s.heads / s.groups) * s.state_dim;
    const int64_t group_width = int64_t{s.groups} * s.state_dim;
    int32_t bad = kMixerFinite;
    for (int32_t first = 0; first < args.n_rows; first += kBlock) {
      const int32_t n = args.n_rows - first < kBlock ? args.n_rows - first : kBlock;
      for (int32_t i = 0; i < n; ++i) {
        c.run<Isa>(first + i, b, s.state_dim, block.key + i * s.state_dim);
        c.run<Isa>(first + i, b + group_width, s.state_dim, block.query + i * s.state_dim);
      }
      for (int64_t h = begin; h < end; ++h) {
        for (int32_t i = 0; i < n; ++i) {
          c.run<Isa>(first + i, h * s.head_dim, s.head_dim, block.value + i * s.head_dim);
        }
        gates<Isa>(args, s, h, first, n, block);
        const int32_t row = recur<Isa>(args, s, h, first, n, block);
        bad = row < bad ? row : bad;
      }
    }
    for (int64_t h = begin; h < end; ++h) keep<Isa>(c, args, s, h);
    return bad;
  }

  // Steps and decays of all tokens of the block at once.
  template <class Isa>
  static MOE_HD_CALL void gates(const MixerArgs& args, const Mamba2Sizes& s, int64_t h,
                                int32_t first, int32_t n, Block& block) {
    using F = typename Isa::F;
    float x[16] = {};
    for (int32_t i = 0; i < n; ++i) {
      x[i] = args.in[(first + i) * args.ld_in + s.inner() + s.channels() + h];
    }
    const F low = Isa::set1(args.config.params[kDtLow]);
    const F high = Isa::set1(args.config.params[kDtHigh]);
    const F bias = Isa::set1(args.vectors[kDtBias][h]);
    F step = by_lanes_of<Isa>(Isa::add(Isa::load(x), bias),
                              []<class M>(M, typename M::F w) { return softplus_lanes<M>(w); });
    step = Isa::select(Isa::lt(step, low), low, step);
    step = Isa::select(Isa::lt(high, step), high, step);
    const F speed = Isa::set1(exp_float(args.vectors[kALog][h]));
    if (group_of<Isa>() != 0) return;
    Isa::store(block.rate, step);
    Isa::store(block.decay, decay_of<Isa>(step, speed));
  }

  template <class Isa>
  static MOE_HD_CALL int32_t recur(const MixerArgs& args, const Mamba2Sizes& s, int64_t h,
                                   int32_t first, int32_t n, const Block& block) {
    Recurrence r = block.recurrence(args, first, n, s.state_dim, s.head_dim,
                                    s.history() + h * s.matrix(), h * s.head_dim);
    r.skip = args.vectors[kD] + h;
    wait_for_groups<Isa>();
    run_recurrence<Isa, false>(r);
    wait_for_groups<Isa>();
    for (int32_t i = group_of<Isa>(); i < n; i += group_count<Isa>()) {
      if (!all_finite<Isa>(r.out + i * r.ld_out, s.head_dim)) return first + i;
    }
    return kMixerFinite;
  }

  // A group's channels belong to its first head.
  template <class Isa>
  static MOE_HD_CALL void keep(const Convolution& c, const MixerArgs& args, const Mamba2Sizes& s,
                               int64_t h) {
    c.keep<Isa>(args.n_rows, h * s.head_dim, s.head_dim, args.to);
    const int64_t group = s.heads / s.groups;
    if (h % group != 0) return;
    const int64_t b = s.inner() + h / group * s.state_dim;
    c.keep<Isa>(args.n_rows, b, s.state_dim, args.to);
    c.keep<Isa>(args.n_rows, b + int64_t{s.groups} * s.state_dim, s.state_dim, args.to);
  }
};

}  // namespace moe
