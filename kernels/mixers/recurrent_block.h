// SPDX-License-Identifier: MIT
#pragma once
// A few tokens of one head on their way through its state. Plain C headers only.

#include "kernels/mixers/info.h"
#include "kernels/mixers/recurrence.h"

namespace moe {

/// The inputs of the recurrence for tokens that go through a state while it is in cache.
struct RecurrentBlock {
  static constexpr int kTokens = 8;
  static constexpr int kMaxDim = 256;  // of keys and of values

  float key[kTokens * kMaxDim];  // (tokens, n_keys)
  float query[kTokens * kMaxDim];
  float value[kTokens * kMaxDim];  // (tokens, n_values)
  float decay[kTokens * kMaxDim];  // (tokens), or (tokens, n_keys)
  float rate[16];

  /// The recurrence of n tokens from row `first` on. state: where the head's matrix begins in that
  /// of the layer; column: where its outputs begin in a row.
  MOE_HD Recurrence recurrence(const MixerArgs& args, int32_t first, int32_t n, int32_t n_keys,
                               int32_t n_values, int64_t state, int64_t column) const {
    const float* before = first > 0 ? args.to : args.from;
    Recurrence r;
    r.n_rows = n;
    r.n_keys = n_keys;
    r.n_values = n_values;
    r.key = key;
    r.query = query;
    r.value = value;
    r.decay = decay;
    r.rate = rate;
    r.from = before != nullptr ? before + state : nullptr;
    r.to = args.to + state;
    r.out = args.out + first * args.ld_out + column;
    r.ld_key = n_keys;
    r.ld_value = n_values;
    r.ld_out = args.ld_out;
    return r;
  }
};

}  // namespace moe
