// SPDX-License-Identifier: MIT
#pragma once
// The gated short convolution of LFM2 (Liquid AI 2025). For a token t and each of d_model
// channels, with B, C, x = W_in norm(h):
//
//   s_t = B_t x_t
//   y_t = C_t (b + w_0 s_{t-L+1} + ... + w_{L-1} s_t)      the oldest first, by fused multiply-adds
//
// Before the text s is 0. The state is the last L - 1 of s, the oldest first.

#include "kernels/mixers/groups.h"
#include "kernels/mixers/info.h"

namespace moe {

struct ShortConvMixer {
  static constexpr int kMaxLength = 64;
  static constexpr int kChannels = 16;  // of a unit: as many as an Isa has lanes
  enum Weight { kIn, kInBias, kConv, kConvBias, kOut, kOutBias };

  static constexpr MOE_HD int32_t length(const MixerConfig& c) { return c.count(0); }
  static constexpr int64_t channels(const MixerConfig&, int32_t d) { return d; }

  static constexpr MixerInfo info = {
      .name = "short_conv",
      .params = {{.name = "length", .low = 1, .high = kMaxLength}},
      .weights = {{"short_conv.in.weight", MixerUse::kIn,
                   [](const MixerConfig&, int32_t d) { return int64_t{3} * d; }},
                  {"short_conv.in.bias", MixerUse::kInBias,
                   [](const MixerConfig&, int32_t d) { return int64_t{3} * d; }},
                  // (channels, length)
                  {"short_conv.conv.weight", MixerUse::kVector,
                   [](const MixerConfig& c, int32_t d) { return int64_t{d} * length(c); }},
                  {"short_conv.conv.bias", MixerUse::kBias, channels},
                  {"short_conv.out.weight", MixerUse::kOut, channels},
                  {"short_conv.out.bias", MixerUse::kOutBias, channels}},
      .state = [](const MixerConfig& c, int32_t d) { return int64_t{d} * (length(c) - 1); },
      .units = [](const MixerConfig&, int32_t d) { return int64_t{d + kChannels - 1} / kChannels; },
      .work = [](const MixerConfig& c, int32_t) { return int64_t{kChannels} * (length(c) + 2); },
      .narrow = true,
  };

  template <class Isa>
  static MOE_HD_CALL int32_t run(const MixerArgs& a) {
    int32_t bad = kMixerFinite;
    for (int64_t u = a.begin + group_of<Isa>(); u < a.end; u += group_count<Isa>()) {
      const int32_t row = unit<Isa>(a, u * kChannels);
      bad = row < bad ? row : bad;
    }
    return bad;
  }

 private:
  // Channels [c, c + 16), as far as there are so many.
  template <class Isa>
  static MOE_HD_CALL int32_t unit(const MixerArgs& a, int64_t c) {
    using F = typename Isa::F;
    const int32_t n_taps = length(a.config);
    const int64_t d = a.d_model;
    const int n = d - c < kChannels ? static_cast<int>(d - c) : kChannels;
    F taps[kMaxLength];
    F seen[kMaxLength];  // s of the last tokens; that of token t is at t + n_taps - 1, cyclically
    for (int32_t j = 0; j < n_taps; ++j) {
      float lanes[kChannels] = {};
      for (int i = 0; i < n; ++i) lanes[i] = a.vectors[kConv][(c + i) * n_taps + j];
      taps[j] = Isa::load(lanes);
    }
    for (int32_t j = 0; j + 1 < n_taps; ++j) {
      seen[j] = a.from == nullptr ? Isa::zero() : Isa::load_n(a.from + j * d + c, n);
    }
    const float* const bias = a.vectors[kConvBias];
    const F first = bias == nullptr ? Isa::zero() : Isa::load_n(bias + c, n);
    F finite = Isa::zero();  // becomes NaN with the first s that is not finite
    int32_t oldest = 0;
    for (int64_t r = 0; r < a.n_rows; ++r) {
      const float* const in = a.in + r * a.ld_in + c;
      const int32_t newest = oldest == 0 ? n_taps - 1 : oldest - 1;
      seen[newest] = Isa::mul(Isa::load_n(in, n), Isa::load_n(in + 2 * d, n));
      finite = Isa::fma(seen[newest], Isa::zero(), finite);
      F sum = first;
      for (int32_t j = 0, at = oldest; j < n_taps; ++j) {
        sum = Isa::fma(taps[j], seen[at], sum);
        at = at + 1 == n_taps ? 0 : at + 1;
      }
      Isa::store_n(a.out + r * a.ld_out + c, Isa::mul(Isa::load_n(in + d, n), sum), n);
      oldest = oldest + 1 == n_taps ? 0 : oldest + 1;
    }
    for (int32_t j = 0, at = oldest; j + 1 < n_taps; ++j) {
      Isa::store_n(a.to + j * d + c, seen[at], n);
      at = at + 1 == n_taps ? 0 : at + 1;
    }
    return Isa::count(Isa::eq(finite, finite)) == kChannels ? kMixerFinite : first_bad(a, c, n);
  }

  static MOE_HD_CALL int32_t first_bad(const MixerArgs& a, int64_t c, int n) {
    for (int32_t r = 0; r < a.n_rows; ++r) {
      const float* const in = a.in + r * a.ld_in + c;
      for (int i = 0; i < n; ++i) {
        const float s = in[i] * in[i + 2 * int64_t{a.d_model}];
        if (!(s - s == 0)) return r;
      }
    }
    return kMixerFinite;
  }
};

}  // namespace moe
