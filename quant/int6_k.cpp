// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of int6_k, and quantises rows to it; int3_k's
// scales are found the same way.
#include "quant/int6_k.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "quant/block_scan.h"
#include "quant/factors.h"
#include "quant/random.h"
#include "quant/scale_search.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

using Layout = Int6KLayout;
constexpr int kN = Layout::kGroupInputs;
constexpr int kSegment = Layout::kGroups * kN;
// The largest weight: the largest f16 times the largest factor and code.
constexpr float kLargestWeight = 128 * 31 * kLargestHalf;

int32_t groups_in(int64_t cols) { return static_cast<int32_t>((cols + kN - 1) / kN); }

// Rounds code-sized numbers half to even.
constexpr float kWholes = 12582912.0f;
float whole(float v) { return v + kWholes - kWholes; }

// Codes with a scale alone, and the search for it.
struct Kind {
  float least;  // code
  float most;
  FactorRange factors;
  // The largest weight's code is tried from `first` to `last` parts of a whole.
  int first;
  int last;
  float part;

  float nearest(float v) const {
    v = v < least ? least : v;
    v = v > most ? most : v;
    return whole(v);
  }
  float largest_scale() const { return static_cast<float>(-factors.least) * kLargestHalf; }
};
constexpr Kind kSixBits = {-32, 31, kEightBitFactors, 56, 64, 0.5f};
constexpr Kind kThreeBits = {-4, 3, kSignedSixBitFactors, 20, 36, 0.125f};

// Writes the codes of n inputs (at most a group), and those of 0 behind them.
void put_codes(const int8_t* codes, int32_t n, int row, int32_t group, uint8_t* tile) {
  uint8_t stored[kN];
  std::memset(stored, Layout::kOffset, sizeof stored);
  for (int32_t i = 0; i < n; ++i) {
    stored[i] =
        static_cast<uint8_t>(std::min<int>(codes[i], Layout::kOffset - 1) + Layout::kOffset);
  }
  uint32_t quad[4];  // the codes of four inputs each
  std::memcpy(quad, stored, sizeof quad);
  uint32_t high = 0;
  for (int q = 0; q < 4; ++q) high |= (quad[q] >> 4 & 0x03030303u) << (2 * q);
  uint8_t* bytes = tile + Layout::codes_at(group) + row * 4;
  for (int q = 0; q < 4; q += 2, bytes += kBlockBytes) {
    const uint32_t low = (quad[q] & 0x0F0F0F0Fu) | (quad[q + 1] & 0x0F0F0F0Fu) << 4;
    std::memcpy(bytes, &low, sizeof low);
  }
  static_assert(Layout::kHigh == 2 * kBlockBytes);
  std::memcpy(bytes, &high, sizeof high);
}

void put_factors(uint8_t* tile, int row, int32_t segment, const Factors& scale) {
  uint8_t* scales = tile + segment * Layout::kSegmentBytes;
  put_half(scales, row, scale.half);
  for (int g = 0; g < Layout::kGroups; ++g) {
    scales[EightBitScales::kFactors + kTileRows * g + row] = static_cast<uint8_t>(scale.factor[g]);
  }
}

// As factors_of() writes the same numbers.
void make_largest_positive(Factors* scale) {
  const auto smaller = [](int a, int b) { return std::abs(a) < std::abs(b); };
  const int* largest = std::max_element(scale->factor, scale->factor + Layout::kGroups, smaller);
  if (*largest > 0) return;
  scale->half = -scale->half;
  for (int& factor : scale->factor) factor = -factor;
}

// A padding tile: codes 0, scales 1.
void clear_tile(int32_t cols, uint8_t* tile) {
  std::memset(tile, 0, int6_k_tile_bytes(cols));
  Factors one = {1.0f, {}};
  for (int& factor : one.factor) factor = 1;
  const int32_t n_groups = groups_in(cols);
  for (int32_t s = 0; s * Layout::kGroups < n_groups; ++s) {
    for (int row = 0; row < kTileRows; ++row) put_factors(tile, row, s, one);
  }
  for (int32_t group = 0; group < n_groups; ++group) {
    std::memset(tile + Layout::codes_at(group) + Layout::kHigh, 0xAA, kBlockBytes);
  }
}

// The groups of a segment of a row.
class Segment {
 public:
  explicit Segment(const Kind& kind) : kind_(kind) {}

  void fit(const float* w, const float* importance, int32_t n) {
    n_ = 0;
    for (int32_t begin = 0; begin < n; begin += kN, ++n_) {
      const float* part = importance != nullptr ? importance + begin : nullptr;
      groups_[n_] = read_group(w + begin, part, std::min(n - begin, kN));
      choose_scale(n_);
    }
    factors_ = factors_of(kind_.factors, scales_, weights_, n_);
    for (int g = 0; g < n_; ++g) {
      // A scale too small for its segment: its weights are at least rounded to the smallest one.
      int& factor = factors_.factor[g];
      if (factor == 0 && scales_[g] != 0.0f)
        factor = (scales_[g] < 0) == (factors_.half < 0) ? 1 : -1;
      round(groups_[g], factors_.at(g), codes_[g]);
    }
  }
  const Factors& factors() const { return factors_; }
  const int8_t* codes(int g) const { return codes_[g]; }

 private:
  void round(const WeightGroup& group, float scale, int8_t* codes) const {
    for (int i = 0; i < kN; ++i) {
      codes[i] = static_cast<int8_t>(scale == 0.0f ? 0.0f : kind_.nearest(group.w[i] / scale));
    }
  }

  // The largest weight's code is tried with either sign, and each scale is refined by least
  // squares.
  void choose_scale(int g) {
    const WeightGroup& group = groups_[g];
    float largest = 0;
    for (const float w : group.w) largest = std::fabs(w) > std::fabs(largest) ? w : largest;
    scales_[g] = weights_[g] = 0;
    float least = -1;
    const auto keep = [&](float scale, const Tried& tried) {
      if (least >= 0 && !(tried.error < least)) return;
      least = tried.error;
      scales_[g] = scale;
      weights_[g] = tried.qq;
    };
    for (int parts = kind_.first; parts <= kind_.last; ++parts) {
      for (const float part : {-kind_.part, kind_.part}) {
        const float scale = largest / (part * static_cast<float>(parts));
        if (!fits(scale)) continue;
        const Tried first = attempt(group, scale);
        keep(scale, first);
        const float refined = first.qq > 0 ? first.qw / first.qq : 0.0f;
        if (fits(refined)) keep(refined, attempt(group, refined));
      }
    }
  }

  // The weighted squared error with a scale, and sums of importance times code^2 and code * weight.
  struct Tried {
    float error, qq, qw;
  };
  // A loop over single weights is unrolled before it can be vectorised.
  Tried attempt(const WeightGroup& group, float scale) const {
    using Four = float __attribute__((vector_size(16)));
    const Four least = Four{} + kind_.least, most = Four{} + kind_.most;
    const float inverse = 1.0f / scale;
    Four error[2] = {}, qq[2] = {}, qw[2] = {};  // kGroupSums partial sums
    for (int i = 0; i < kN / 4; ++i) {
      Four w, importance;
      std::memcpy(&w, group.w + 4 * i, sizeof w);
      std::memcpy(&importance, group.importance + 4 * i, sizeof importance);
      Four code = w * inverse;
      code = code < least ? least : code;
      code = code > most ? most : code;
      code = code + kWholes - kWholes;
      const Four d = w - code * scale;
      error[i % 2] += importance * (d * d);
      qq[i % 2] += importance * code * code;
      qw[i % 2] += importance * code * w;
    }
    const auto sum = [](const Four(&sums)[2]) {
      float parts[kGroupSums];
      std::memcpy(parts, sums, sizeof parts);
      return sum_of(parts);
    };
    return {sum(error), sum(qq), sum(qw)};
  }

  // Smaller scales have no inverse, larger ones no f16.
  bool fits(float scale) const {
    return std::fabs(scale) >= 0x1p-126f && std::fabs(scale) <= kind_.largest_scale();
  }

  const Kind& kind_;
  int n_ = 0;
  WeightGroup groups_[Layout::kGroups];
  float scales_[Layout::kGroups];
  float weights_[Layout::kGroups];
  Factors factors_;
  int8_t codes_[Layout::kGroups][kN];
};

}  // namespace

void fit_three_bits(const float* w, const float* importance, int32_t n, SegmentFit* out) {
  Segment segment(kThreeBits);
  segment.fit(w, importance, n);
  out->scale = segment.factors();
  out->minimum = {};
  for (int g = 0; g * kN < n; ++g) std::memcpy(out->codes[g], segment.codes(g), kN);
}

size_t int6_k_tile_bytes(int64_t cols) {
  const int64_t groups = (cols + kN - 1) / kN;
  const int64_t segments = (groups + Layout::kGroups - 1) / Layout::kGroups;
  return static_cast<size_t>(segments * Layout::kScaleBytes + groups * Layout::kGroupBytes);
}

void int6_k_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t begin = 0; begin < cols; begin += kN) {
    const uint8_t* codes = tile + Layout::codes_at(begin / kN) + row * 4;
    uint32_t word[3];  // of each block
    for (int b = 0; b < 3; ++b) std::memcpy(&word[b], codes + b * kBlockBytes, sizeof word[b]);
    uint32_t quad[4];  // the codes of four inputs each
    for (int q = 0; q < 4; ++q) {
      quad[q] = (word[q / 2] >> (q % 2 * 4) & 0x0F0F0F0Fu) | (word[2] >> (2 * q) & 0x03030303u)
                                                                 << 4;
    }
    uint8_t stored[kN];
    std::memcpy(stored, quad, sizeof stored);
    float weights[kN];
    for (int i = 0; i < kN; ++i) weights[i] = static_cast<float>(stored[i] - Layout::kOffset);
    std::memcpy(out + begin, weights,
                static_cast<size_t>(std::min(cols - begin, kN)) * sizeof(float));
  }
}

void int6_k_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  clear_tile(cols, tile);
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t group = 0; group < groups_in(cols); ++group) {
      const int32_t begin = group * kN;
      put_codes(codes + row * ld + begin, std::min(cols - begin, kN), row, group, tile);
    }
  }
}

void int6_k_pack_scales(const float* scales, const float*, int n_rows, int32_t cols,
                        uint8_t* tile) {
  const int32_t n_groups = groups_in(cols);
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t g = 0; g < n_groups; g += Layout::kGroups) {
      const int n = std::min(n_groups - g, Layout::kGroups);
      const Factors found = factors_of(kEightBitFactors, scales + row * n_groups + g, nullptr, n);
      put_factors(tile, row, g / Layout::kGroups, found);
    }
  }
}

Status int6_k_quantise(const float* w, int64_t ld, int n_rows, int32_t cols,
                       const float* importance, uint8_t* tile) {
  clear_tile(cols, tile);
  Segment segment(kSixBits);
  for (int row = 0; row < n_rows; ++row) {
    const float* weights = w + row * ld;
    MOE_TRY(check_weights(weights, cols, kLargestWeight));
    for (int32_t begin = 0; begin < cols; begin += kSegment) {
      const int32_t n = std::min(cols - begin, kSegment);
      segment.fit(weights + begin, importance != nullptr ? importance + begin : nullptr, n);
      for (int g = 0; g * kN < n; ++g) {
        put_codes(segment.codes(g), std::min(n - g * kN, kN), row, begin / kN + g, tile);
      }
      put_factors(tile, row, begin / kSegment, segment.factors());
    }
  }
  return {};
}

int64_t int6_k_find_invalid(const uint8_t* tile, size_t bytes) {
  for (size_t at = 0; at < bytes; at += Layout::kSegmentBytes) {
    if (find_block(tile + at, kBlockBytes / 2, infinite_halves) >= 0) {
      return static_cast<int64_t>(at / kBlockBytes);
    }
  }
  return -1;
}

int8_t int6_k_random_code(uint8_t byte) { return static_cast<int8_t>(byte % 64 - Layout::kOffset); }

// Zero-mean weights with variance amplitude^2 / 3.
void int6_k_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  // The codes' mean square is 341.5; their mean is -1/2, so that half of the scales are negative.
  const float even = amplitude / std::sqrt(3 * 341.5f);
  const auto n_segments = static_cast<int32_t>(bytes / Layout::kSegmentBytes);
  for (int32_t s = 0; s < n_segments; ++s) {
    std::memset(tile + s * Layout::kSegmentBytes, 0, kBlockBytes);
    for (int row = 0; row < kTileRows; ++row) {
      Factors scale = {as_half(even / 114), {}};
      for (int& factor : scale.factor) {
        factor = 101 + static_cast<int>(27 * random.uniform());
        if (random.uniform() < 0.5f) factor = -factor;
      }
      make_largest_positive(&scale);
      put_factors(tile, row, s, scale);
    }
  }
}

}  // namespace moe
