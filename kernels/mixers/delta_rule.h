// SPDX-License-Identifier: MIT
#pragma once
// The delta rules: for each value head h, with the key head of its group,
//
//   q, k, v = the head's parts of silu(convolution(q)), silu(convolution(k)), silu(convolution(v))
//   q = q / |q| / sqrt(key_dim);  k = k / |k|;  beta = beta_scale sigmoid(b_h)
//   decay = e^-(e^a_log softplus(a_h + dt_bias))
//   o = recurrence of q, k, v, decay and rate beta
//   out_h = o / rms(o) * weight * silu(z_h)
//
// Kimi's rule has a decay for each key, and sigmoid(z_h) in the last line. Its a and z are inputs,
// or products A x and Z x of a few inputs x each: sums over ascending inputs by fused
// multiply-adds, from 0. With a bound, which is below 0,
//
//   decay = e^(bound sigmoid(e^a_log (a_h + dt_bias)))
//
// |x| = sqrt(sum of squares + 1e-6). The state of a layer: the last inputs of the convolutions, of
// q, k and v side by side, then the matrices of the heads. Plain C headers only.

#include "kernels/mixers/convolution.h"
#include "kernels/mixers/gates.h"
#include "kernels/mixers/info.h"
#include "kernels/mixers/recurrent_block.h"

namespace moe {

struct DeltaSizes {
  int32_t key_heads = 0;
  int32_t value_heads = 0;  // a multiple of key_heads: each of these serves neighbouring ones
  int32_t key_dim = 0;      // of a head, 1..RecurrentBlock::kMaxDim
  int32_t value_dim = 0;
  int32_t n_taps = 0;

  static constexpr int kMaxHeads = 1024;
  static constexpr int kMaxDim = RecurrentBlock::kMaxDim;

  constexpr MOE_HD int32_t keys() const { return key_heads * key_dim; }
  constexpr MOE_HD int32_t values() const { return value_heads * value_dim; }
  constexpr MOE_HD int64_t channels() const { return int64_t{2} * keys() + values(); }
  constexpr MOE_HD int64_t matrix() const { return int64_t{key_dim} * value_dim; }
  constexpr MOE_HD int64_t history() const { return (n_taps - 1) * channels(); }
  constexpr MOE_HD int64_t state() const { return history() + value_heads * matrix(); }
  // Multiply-adds of a head for one token.
  constexpr MOE_HD int64_t work() const {
    return 4 * matrix() + int64_t{2 * key_dim + value_dim} * (n_taps + 16);
  }
};

/// The rule on the tokens of MixerArgs. kKimi: Kimi's.
template <class Isa, bool kKimi = false>
class DeltaRule {
 public:
  DeltaSizes sizes;
  float eps = 0;  // of the norm
  float beta_scale = 1;
  // Columns of MixerArgs::in, which begin with q, k and v. Kimi's z and a: of the inputs x if there
  // is a rank.
  int64_t z = 0;
  int64_t b = 0;
  int64_t a = 0;
  const float* q_conv = nullptr;  // (n_taps, keys)
  const float* k_conv = nullptr;
  const float* v_conv = nullptr;   // (n_taps, values)
  const float* dt_bias = nullptr;  // (value_heads), Kimi's (keys)
  const float* a_log = nullptr;    // (value_heads)
  const float* norm = nullptr;     // (value_dim)
  // Kimi's rule alone has these.
  int32_t rank = 0;             // inputs x; 0: a and z are inputs themselves
  float decay_bound = 0;        // 0: none
  const float* a_up = nullptr;  // A: (rank, keys)
  const float* z_up = nullptr;  // Z: (rank, values)

  /// Units [begin, end) of MixerArgs are value heads.
  MOE_HD_CALL int32_t run(const MixerArgs& args) const {
    int32_t bad = kMixerFinite;
    for (int64_t h = args.begin; h < args.end;) {
      const int64_t group_end = (key_head(h) + 1) * group();
      const int64_t end = group_end < args.end ? group_end : args.end;
      const int32_t row = run_heads(args, h, end);
      bad = row < bad ? row : bad;
      h = end;
    }
    return bad;
  }

 private:
  using F = typename Isa::F;
  using Block = RecurrentBlock;
  static constexpr int kBlock = Block::kTokens;
  static constexpr float kUnitEps = 1e-6f;

  struct Convolutions {
    Convolution q, k, v;
  };

  MOE_HD int64_t group() const { return sizes.value_heads / sizes.key_heads; }
  MOE_HD int64_t key_head(int64_t h) const { return h / group(); }

  MOE_HD_CALL Convolutions convolutions(const MixerArgs& args) const {
    const auto part = [&](const float* weight, int32_t width, int64_t at) {
      Convolution c;
      c.n_taps = sizes.n_taps;
      c.n_channels = width;
      c.weight = weight;
      c.in = args.in + at;
      c.ld_in = args.ld_in;
      c.from = args.from != nullptr ? args.from + at : nullptr;
      c.ld_state = sizes.channels();
      return c;
    };
    const int32_t keys = sizes.keys();
    return {part(q_conv, keys, 0), part(k_conv, keys, keys),
            part(v_conv, sizes.values(), int64_t{2} * keys)};
  }

  // Value heads of one key head, which share its queries and keys.
  MOE_HD_CALL int32_t run_heads(const MixerArgs& args, int64_t begin, int64_t end) const {
    OfUnit<Isa, Block> memory;
    Block& block = memory.get();
    const Convolutions c = convolutions(args);
    int32_t bad = kMixerFinite;
    for (int32_t first = 0; first < args.n_rows; first += kBlock) {
      const int32_t n = args.n_rows - first < kBlock ? args.n_rows - first : kBlock;
      prepare_keys(c, key_head(begin), first, n, block);
      for (int64_t h = begin; h < end; ++h) {
        for (int32_t i = 0; i < n; ++i) {
          c.v.template run<Isa>(first + i, h * sizes.value_dim, sizes.value_dim,
                                block.value + i * sizes.value_dim);
        }
        gates(args, h, first, n, block);
        wait_for_groups<Isa>();
        recur(args, h, first, n, block);
        wait_for_groups<Isa>();
        const int32_t row = finish(args, h, first, n, block);
        bad = row < bad ? row : bad;
        if (kKimi) wait_for_groups<Isa>();  // finish() uses the memory of values
      }
    }
    for (int64_t h = begin; h < end; ++h) keep(c, args, h);
    return bad;
  }

  MOE_HD_CALL void prepare_keys(const Convolutions& c, int64_t head, int32_t first, int32_t n,
                                Block& block) const {
    const int32_t d = sizes.key_dim;
    const float root = 1.0f / __builtin_sqrtf(static_cast<float>(d));
    for (int32_t i = 0; i < n; ++i) {
      c.q.template run<Isa>(first + i, head * d, d, block.query + i * d);
      c.k.template run<Isa>(first + i, head * d, d, block.key + i * d);
    }
    wait_for_groups<Isa>();
    for (int32_t i = group_of<Isa>(); i < n; i += group_count<Isa>()) {
      scale_to_unit<Isa>(block.query + i * d, d, kUnitEps, root);
      scale_to_unit<Isa>(block.key + i * d, d, kUnitEps, 1.0f);
    }
  }

  MOE_HD_CALL void recur(const MixerArgs& args, int64_t h, int32_t first, int32_t n,
                         const Block& block) const {
    Recurrence r = block.recurrence(args, first, n, sizes.key_dim, sizes.value_dim,
                                    sizes.history() + h * sizes.matrix(), h * sizes.value_dim);
    r.delta = true;
    r.decay_by_key = kKimi;
    run_recurrence<Isa, true, kKimi>(r);
  }

  // Numbers of a head are computed for all tokens of the block at once.
  MOE_HD_CALL void gates(const MixerArgs& args, int64_t h, int32_t first, int32_t n,
                         Block& block) const {
    const F speed = Isa::set1(exp_float(a_log[h]));
    float x[16] = {};
    for (int32_t i = 0; i < n; ++i) x[i] = args.in[(first + i) * args.ld_in + b + h];
    const F open = by_lanes_of<Isa>(
        Isa::load(x), []<class L>(L, typename L::F w) { return sigmoid_lanes<L>(w); });
    const bool stores = group_of<Isa>() == 0;
    if (stores) Isa::store(block.rate, Isa::mul(Isa::set1(beta_scale), open));
    if constexpr (kKimi) {
      decays_of_keys(args, h, first, n, speed, block);
    } else {
      for (int32_t i = 0; i < n; ++i) x[i] = args.in[(first + i) * args.ld_in + a + h];
      const F step =
          by_lanes_of<Isa>(Isa::add(Isa::load(x), Isa::set1(dt_bias[h])),
                           []<class L>(L, typename L::F w) { return softplus_lanes<L>(w); });
      if (stores) Isa::store(block.decay, decay_of<Isa>(step, speed));
    }
  }

  // y (n, width): the products of `up`'s columns [column, column + width) with the `rank` inputs
  // from column `at` on, of n tokens.
  MOE_HD_CALL void multiply_up(const MixerArgs& args, const float* up, int64_t ld_up,
                               int64_t column, int width, int64_t at, int32_t first, int32_t n,
                               float* y) const {
    const float* const in = args.in + first * args.ld_in + at;
    for (int c = first_column<Isa>(); c < width; c += column_step<Isa>()) {
      F sums[kBlock];
      for (int32_t i = 0; i < n; ++i) sums[i] = Isa::zero();
      for (int64_t j = 0; j < rank; ++j) {
        const F w = load_lanes<Isa>(up + j * ld_up + column, c, width);
        for (int32_t i = 0; i < n; ++i) {
          sums[i] = Isa::fma(Isa::set1(in[i * args.ld_in + j]), w, sums[i]);
        }
      }
      for (int32_t i = 0; i < n; ++i) store_lanes<Isa>(y + i * width, sums[i], c, width);
    }
  }

  MOE_HD_CALL void decays_of_keys(const MixerArgs& args, int64_t h, int32_t first, int32_t n,
                                  F speed, Block& block) const {
    const int32_t d = sizes.key_dim;
    if (rank > 0) multiply_up(args, a_up, sizes.keys(), h * d, d, a, first, n, block.decay);
    for (int32_t i = 0; i < n; ++i) {
      const float* const in =
          rank > 0 ? block.decay + i * d : args.in + (first + i) * args.ld_in + a + h * d;
      for (int c = first_column<Isa>(); c < d; c += column_step<Isa>()) {
        const F x = Isa::add(load_lanes<Isa>(in, c, d), load_lanes<Isa>(dt_bias + h * d, c, d));
        store_lanes<Isa>(block.decay + i * d, decay_of_key(x, speed), c, d);
      }
    }
  }

  MOE_HD_CALL F decay_of_key(F x, F speed) const {
    if (decay_bound < 0) {
      const F open = by_lanes_of<Isa>(
          Isa::mul(speed, x), []<class L>(L, typename L::F w) { return sigmoid_lanes<L>(w); });
      return decay_of<Isa>(open, Isa::set1(0 - decay_bound));
    }
    const F step =
        by_lanes_of<Isa>(x, []<class L>(L, typename L::F w) { return softplus_lanes<L>(w); });
    return decay_of<Isa>(step, speed);
  }

  // Gates the outputs of the block. Returns the first row with one that is not finite: then the
  // state is not either.
  MOE_HD_CALL int32_t finish(const MixerArgs& args, int64_t h, int32_t first, int32_t n,
                             Block& block) const {
    int32_t bad = kMixerFinite;
    const int32_t d = sizes.value_dim;
    // The values have served.
    const bool up = kKimi && rank > 0;
    if (up) {
      multiply_up(args, z_up, sizes.values(), h * d, d, z, first, n, block.value);
      wait_for_groups<Isa>();
    }
    for (int32_t i = n - 1 - group_of<Isa>(); i >= 0; i -= group_count<Isa>()) {
      const int64_t row = first + i;
      float* out = args.out + row * args.ld_out + h * d;
      if (!all_finite<Isa>(out, d)) bad = first + i;
      const float* const gate = up ? block.value + i * d : args.in + row * args.ld_in + z + h * d;
      gated_norm<Isa, kKimi>(out, norm, gate, d, eps);
    }
    return bad;
  }

  // A key head's channels belong to the first of its value heads.
  MOE_HD_CALL void keep(const Convolutions& c, const MixerArgs& args, int64_t h) const {
    const int32_t keys = sizes.keys();
    c.v.template keep<Isa>(args.n_rows, h * sizes.value_dim, sizes.value_dim,
                           args.to + int64_t{2} * keys);
    if (h % group() != 0) return;
    const int64_t first = key_head(h) * sizes.key_dim;
    c.q.template keep<Isa>(args.n_rows, first, sizes.key_dim, args.to);
    c.k.template keep<Isa>(args.n_rows, first, sizes.key_dim, args.to + keys);
  }
};

}  // namespace moe
