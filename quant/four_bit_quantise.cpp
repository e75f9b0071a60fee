// SPDX-License-Identifier: MIT
// Quantises floats to four bits, and to the two of int2_k: tries scales and minimums around those
// of the largest weights and uses the best.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/four_bit_tile.h"
#include "quant/scale_search.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

constexpr int kN = kTileGroup;
constexpr int kSums = kGroupSums;

// The values of a table in ascending order; the last stands for missing ones.
struct Values {
  float at[16];
  float between[15];  // upper limits of each value's interval
  bool whole = true;  // consecutive integers
  float shrink;       // of the range, from one trial to the next

  explicit Values(const FourBitKind& kind) {
    for (int code = 0; code < 16; ++code) {
      const uint64_t word = code < 8 ? kind.low : kind.high;
      at[code] = static_cast<int8_t>(word >> (code % 8 * 8) & 255);
    }
    std::sort(at, at + 16);
    for (int i = 0; i < 15; ++i) {
      between[i] = (at[i] + at[i + 1]) / 2;
      whole = whole && at[i + 1] - at[i] <= 1.0f;
    }
    shrink = at[15] == 3.0f ? 0.08f : 0.03f;
  }
};

struct Fit {
  float codes[kN];
  float scale = 0;
  float minimum = 0;
  float error = 0;
};

// out = the value nearest to (w - minimum) / scale.
__attribute__((noinline)) void nearest(const Values& values, const WeightGroup& g, float scale,
                                       float minimum, float (&out)[kN]) {
  float wanted[kN];
  for (int i = 0; i < kN; ++i) wanted[i] = (g.w[i] - minimum) / scale;
  if (values.whole) {
    for (int i = 0; i < kN; ++i) {
      float v = wanted[i];
      v = v < values.at[0] ? values.at[0] : v;
      v = v > values.at[15] ? values.at[15] : v;
      out[i] = v + 12582912.0f - 12582912.0f;  // to a whole number, half to even
    }
    return;
  }
  for (int i = 0; i < kN; ++i) out[i] = values.at[0];
  for (int step = 0; step < 15; ++step) {
    const float next = values.at[step + 1];
    const float from = values.between[step];
    for (int i = 0; i < kN; ++i) {
      out[i] = wanted[i] > from ? next : out[i];
    }
  }
}

// Sums of importance times 1, code, code^2, weight, code * weight.
struct Moments {
  float one, q, qq, w, qw;
};

__attribute__((noinline)) Moments moments(const WeightGroup& g, const float (&codes)[kN]) {
  float one[kSums] = {}, q[kSums] = {}, qq[kSums] = {}, w[kSums] = {}, qw[kSums] = {};
  for (int i = 0; i < kN; i += kSums) {
    for (int j = 0; j < kSums; ++j) {
      const float h = g.importance[i + j], code = codes[i + j];
      one[j] += h;
      q[j] += h * code;
      qq[j] += h * code * code;
      w[j] += h * g.w[i + j];
      qw[j] += h * code * g.w[i + j];
    }
  }
  return {sum_of(one), sum_of(q), sum_of(qq), sum_of(w), sum_of(qw)};
}

class Search {
 public:
  Search(const FourBitKind& kind, const Values& values, const WeightGroup& g)
      : values_(values), kind_(kind), g_(g), lowest_(g.w[0]), highest_(g.w[0]) {
    for (const float w : g_.w) {
      lowest_ = std::min(lowest_, w);
      highest_ = std::max(highest_, w);
    }
  }

  Fit run() {
    switch (kind_.scale) {
      case GroupScale::kF16:
        scales();
        break;
      case GroupScale::kF16Minimum:
      case GroupScale::kSixBits:
      case GroupScale::kFourBits:
        minimums();
        break;
      case GroupScale::kPowerOfTwo:
        powers();
        break;
      case GroupScale::kEightBits:  // not of these codes
      case GroupScale::kSigned6:
      case GroupScale::kUnsigned4:
        break;
    }
    return best_;
  }

  // The best scale for a minimum.
  Fit run_above(float minimum) {
    none(minimum);
    const float up = highest_ - minimum, down = lowest_ - minimum;
    const float largest = up >= -down ? up : down;
    for (int step = 0; step < 8; ++step) {
      const float first =
          largest * (1.0f - values_.shrink * static_cast<float>(step)) / values_.at[15];
      if (!(std::fabs(first) > 0.0f)) break;
      float codes[kN];
      nearest(values_, g_, first, minimum, codes);
      const Moments m = moments(g_, codes);
      consider(first, minimum);
      if (m.qq > 0.0f) consider((m.qw - minimum * m.q) / m.qq, minimum);
    }
    return best_;
  }

 private:
  // Uses scale and minimum, as stored, if they are better.
  __attribute__((noinline)) void consider(float scale, float minimum) {
    const bool fits = std::fabs(scale) > 0.0f && std::fabs(scale) <= kLargestHalf &&
                      std::fabs(minimum) <= kLargestHalf;
    if (!fits && kind_.scale != GroupScale::kPowerOfTwo) return;
    Fit fit;
    fit.scale = scale;
    fit.minimum = minimum;
    nearest(values_, g_, scale, minimum, fit.codes);
    fit.error = group_error(g_, [&](int i) { return fit.codes[i] * scale + minimum; });
    if (found_ && !(fit.error < best_.error)) return;
    found_ = true;
    best_ = fit;
  }

  // Without a valid scale, uses that of zeros.
  void none(float minimum) {
    best_.minimum = minimum;
    nearest(values_, WeightGroup{}, 1.0f, 0.0f, best_.codes);
  }

  void scales() {
    const float largest = -lowest_ > highest_ ? lowest_ : highest_;
    none(0.0f);
    for (const float end : {values_.at[0], values_.at[15]}) {
      for (int step = -4; step <= 4; ++step) {
        const float first = largest / (end * (1.0f + 0.03f * static_cast<float>(step)));
        if (!(std::fabs(first) > 0.0f)) continue;
        float codes[kN];
        nearest(values_, g_, first, 0.0f, codes);
        const Moments m = moments(g_, codes);
        consider(as_half(m.qq > 0.0f ? m.qw / m.qq : first), 0.0f);
      }
    }
    if (!found_) return;
    const Moments m = moments(g_, best_.codes);
    if (m.qq > 0.0f) consider(as_half(m.qw / m.qq), 0.0f);
  }

  void minimums() {
    none(as_half(0.5f * (lowest_ + highest_)));
    for (int step = 0; step < 8; ++step) {
      const float shrunk = 1.0f - values_.shrink * static_cast<float>(step);
      const float middle = 0.5f * (lowest_ + highest_);
      const float low = middle + (lowest_ - middle) * shrunk;
      const float first = (highest_ - lowest_) * shrunk / values_.at[15];
      if (!(first > 0.0f)) return;
      float codes[kN];
      nearest(values_, g_, first, low, codes);
      const Moments m = moments(g_, codes);
      const float determinant = m.one * m.qq - m.q * m.q;
      consider(as_half(first), as_half(low));
      if (!(determinant > 0.0f)) continue;
      consider(as_half((m.one * m.qw - m.q * m.w) / determinant),
               as_half((m.qq * m.w - m.q * m.qw) / determinant));
    }
  }

  void powers() {
    const float largest = std::max(-lowest_, highest_);
    none(0.0f);
    best_.scale = power_of_two(0);
    if (!(largest > 0.0f)) return;
    const int exponent = std::ilogb(largest) - 3;  // the largest value is 12 = 1.5 * 2^3
    for (int e = exponent - 1; e <= exponent + 1; ++e) {
      consider(std::ldexp(1.0f, std::clamp(e, -128, 126)), 0.0f);
    }
  }

  const Values& values_;
  const FourBitKind& kind_;
  const WeightGroup& g_;
  float lowest_;
  float highest_;
  bool found_ = false;
  Fit best_;
};

// The largest scale times the nearest table end.
float largest_weight(GroupScale scale) {
  if (scale == GroupScale::kPowerOfTwo) return std::numeric_limits<float>::max();
  return has_minimum(scale) ? kLargestHalf : 7 * kLargestHalf;
}

// int2_k as the search sees it.
constexpr FourBitKind kTwoBits = {GroupScale::kFourBits, table_word({0, 1, 2, 3, 3, 3, 3, 3}),
                                  table_word({3, 3, 3, 3, 3, 3, 3, 3})};

// The groups of a segment of a row.
class Segment {
 public:
  Segment(const FourBitKind& kind, const Values& values) : kind_(kind), values_(values) {}

  void fit(const float* w, const float* importance, int32_t n) {
    n_ = 0;
    const bool two = kind_.scale == GroupScale::kFourBits;
    const int32_t inputs = two ? SegmentFit::kInputs : kN;
    for (int32_t begin = 0; begin < n; begin += inputs, ++n_) {
      const float* part = importance != nullptr ? importance + begin : nullptr;
      groups_[n_] = read_group(w + begin, part, std::min(n - begin, inputs));
      put(n_, Search(kind_, values_, groups_[n_]).run());
    }
    if (two) share(kFourBitFactors);
    if (kind_.scale == GroupScale::kSixBits) share(kSixBitFactors);
  }
  int n_groups() const { return n_; }
  const float* scales() const { return scales_; }
  const float* minimums() const { return minimums_; }
  const int8_t* codes(int g) const { return codes_[g]; }
  // Those that the groups share.
  const Factors& scale_factors() const { return scale_factors_; }
  const Factors& minimum_factors() const { return minimum_factors_; }

 private:
  void put(int g, const Fit& fit) {
    for (int i = 0; i < kN; ++i) codes_[g][i] = static_cast<int8_t>(fit.codes[i]);
    scales_[g] = fit.scale;
    minimums_[g] = fit.minimum;
    moments_[g] = moments(groups_[g], fit.codes);
  }
  // Rounds the minimums to what all groups share, then the scales that suit them, then the weights.
  void share(FactorRange range) {
    float weights[Factors::kMany];
    for (int g = 0; g < n_; ++g) weights[g] = moments_[g].one;
    // Minimums have one sign. Most are below 0: groups without negative weights get 0.
    if (*std::min_element(minimums_, minimums_ + n_) < 0.0f) {
      for (int g = 0; g < n_; ++g) minimums_[g] = std::min(minimums_[g], 0.0f);
    }
    const Factors minimum = minimum_factors_ = factors_of(range, minimums_, weights, n_);
    for (int g = 0; g < n_; ++g) {
      put(g, Search(kind_, values_, groups_[g]).run_above(minimum.at(g)));
      weights[g] = moments_[g].qq;
    }
    const Factors scale = scale_factors_ = factors_of(range, scales_, weights, n_);
    for (int g = 0; g < n_; ++g) {
      Fit fit = {};
      fit.scale = scale.at(g);
      fit.minimum = minimum.at(g);
      if (fit.scale != 0.0f) nearest(values_, groups_[g], fit.scale, fit.minimum, fit.codes);
      put(g, fit);
    }
  }

  const FourBitKind& kind_;
  const Values& values_;
  int n_ = 0;
  WeightGroup groups_[Factors::kMany];
  Moments moments_[Factors::kMany];
  float scales_[Factors::kMany];
  float minimums_[Factors::kMany];
  Factors scale_factors_, minimum_factors_;
  int8_t codes_[Factors::kMany][kN];
};

}  // namespace

void fit_two_bits(const float* w, const float* importance, int32_t n, SegmentFit* out) {
  const Values table(kTwoBits);
  Segment segment(kTwoBits, table);
  segment.fit(w, importance, n);
  out->scale = segment.scale_factors();
  out->minimum = segment.minimum_factors();
  for (int g = 0; g < segment.n_groups(); ++g) {
    std::memcpy(out->codes[g], segment.codes(g), SegmentFit::kInputs);
  }
}

Status four_bit_quantise(const FourBitKind& kind, const float* w, int64_t ld, int n_rows,
                         int32_t cols, const float* importance, uint8_t* tile) {
  const Codes code(kind);
  const Values table(kind);
  const float most = largest_weight(kind.scale);
  clear_tile(kind, code, cols, tile);
  Segment segment(kind, table);
  const int32_t inputs = groups_of_segment(kind.scale) * kN;
  for (int row = 0; row < n_rows; ++row) {
    const float* weights = w + row * ld;
    MOE_TRY(check_weights(weights, cols, most));
    for (int32_t begin = 0; begin < cols; begin += inputs) {
      segment.fit(weights + begin, importance != nullptr ? importance + begin : nullptr,
                  std::min(cols - begin, inputs));
      for (int g = 0; g < segment.n_groups(); ++g) {
        const int32_t at = begin + g * kN;
        put_codes(kind, code, segment.codes(g), std::min(cols - at, kN), row, at / kN, tile);
      }
      put_scales(kind, tile, row, begin / inputs, segment.scales(), segment.minimums(),
                 segment.n_groups());
    }
  }
  return {};
}

}  // namespace moe
