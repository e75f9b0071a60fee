// SPDX-License-Identifier: MIT
#pragma once
// The causal convolution before a recurrence: each channel for itself, over its last inputs. Plain
// C headers only.

#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/mixers/groups.h"

namespace moe {

/// out_t = silu(bias + w_0 x_{t-n+1} + ... + w_{n-1} x_t): the oldest input first, by one chain of
/// fused multiply-adds from the bias. Inputs before the first token of a text are 0. The state is
/// the last n_taps - 1 inputs, the oldest first.
struct Convolution {
  static constexpr int kMaxTaps = 64;

  int32_t n_taps = 0;  // 1..kMaxTaps
  int32_t n_channels = 0;
  const float* weight = nullptr;  // (n_taps, n_channels), that of the oldest input first
  const float* bias = nullptr;    // (n_channels) or null: 0
  const float* in = nullptr;      // (tokens, n_channels), rows ld_in apart
  int64_t ld_in = 0;
  const float* from = nullptr;  // state before, (n_taps - 1, n_channels), rows ld_state apart, or
                                // null: zeros
  int64_t ld_state = 0;

  /// The inputs of token t, t < 0 before those of `in`; null: zeros.
  MOE_HD const float* input(int64_t t) const {
    if (t >= 0) return in + t * ld_in;
    return from != nullptr ? from + (n_taps - 1 + t) * ld_state : nullptr;
  }

  /// The definition.
  MOE_HD float define(int64_t t, int64_t channel) const {
    float sum = bias != nullptr ? bias[channel] : 0.0f;
    for (int64_t j = 0; j < n_taps; ++j) {
      const float* x = input(t - n_taps + 1 + j);
      const float w = weight[j * n_channels + channel];
      sum = __builtin_fmaf(w, x != nullptr ? x[channel] : 0.0f, sum);
    }
    return activations::silu<ScalarLanes>(sum, 1.0f);
  }

  /// Channels [channel, channel + n) of token t, shared by the groups.
  template <class Isa>
  MOE_HD_CALL void run(int64_t t, int64_t channel, int n, float* out) const {
    using F = typename Isa::F;
    const float* inputs[kMaxTaps];
    for (int64_t j = 0; j < n_taps; ++j) {
      const float* x = input(t - n_taps + 1 + j);
      inputs[j] = x != nullptr ? x + channel : nullptr;
    }
    for (int i = first_column<Isa>(); i < n; i += column_step<Isa>()) {
      F sum = bias != nullptr ? load_lanes<Isa>(bias + channel, i, n) : Isa::zero();
      for (int64_t j = 0; j < n_taps; ++j) {
        const F x = inputs[j] != nullptr ? load_lanes<Isa>(inputs[j], i, n) : Isa::zero();
        sum = Isa::fma(load_lanes<Isa>(weight + j * n_channels + channel, i, n), x, sum);
      }
      const F y = by_lanes_of<Isa>(
          sum, []<class L>(L, typename L::F v) { return activations::silu<L>(v, L::splat(1.0f)); });
      store_lanes<Isa>(out, y, i, n);
    }
  }

  /// Channels [channel, channel + n) of the state after n_rows tokens, shared by the groups; `to`
  /// is as `from`.
  template <class Isa>
  MOE_HD_CALL void keep(int64_t n_rows, int64_t channel, int n, float* to) const {
    for (int64_t j = 0; j + 1 < n_taps; ++j) {
      const float* x = input(n_rows - n_taps + 1 + j);
      float* kept = to + j * ld_state + channel;
      for (int i = first_column<Isa>(); i < n; i += column_step<Isa>()) {
        store_lanes<Isa>(kept, x != nullptr ? load_lanes<Isa>(x + channel, i, n) : Isa::zero(), i,
                         n);
      }
    }
  }

  /// The definition of the state of all channels.
  void define_state(int64_t n_rows, float* to) const {
    for (int64_t j = 0; j + 1 < n_taps; ++j) {
      const float* x = input(n_rows - n_taps + 1 + j);
      for (int64_t c = 0; c < n_channels; ++c) {
        to[j * ld_state + c] = x != nullptr ? x[c] : 0.0f;
      }
    }
  }
};

}  // namespace moe
