// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of int2_k and int3_k, and quantises rows to them.
#include "quant/few_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/block_scan.h"
#include "quant/factors.h"
#include "quant/random.h"
#include "quant/scale_search.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

constexpr int kN = kTileGroup / 2;

int32_t groups_in(int32_t cols) { return (cols + kN - 1) / kN; }

template <class Layout>
constexpr FactorRange kRange = Layout::kMinimums ? kFourBitFactors : kSignedSixBitFactors;

// Writes the codes of n inputs (at most a group).
template <class Layout>
void put_codes(const int8_t* codes, int32_t n, int row, int32_t group, uint8_t* tile) {
  uint8_t* bytes = tile + Layout::codes_at(group) + row * 4;
  constexpr int kMost = Layout::kThird ? 7 : 3;
  for (int32_t i = 0; i < n; ++i) {
    const int code = std::min(codes[i] + Layout::kOffset, kMost);
    uint8_t& low = bytes[i % 4];
    low = static_cast<uint8_t>((low & ~(3 << i / 4 * 2)) | (code & 3) << i / 4 * 2);
    if constexpr (Layout::kThird) {
      uint8_t& third = bytes[Layout::third_after(group) + i % 4];
      const int bit = group % 2 * 4 + i / 4;
      third = static_cast<uint8_t>((third & ~(1 << bit)) | code >> 2 << bit);
    }
  }
}

void put_signed_factor(uint8_t* scales, int row, int g, int factor) {
  if (g % 4 != 3) {
    uint8_t& byte = scales[SignedSixBitScales::byte_at(g) + row];
    byte = static_cast<uint8_t>((byte & 0xC0) | (factor & 63));
    return;
  }
  for (int i = 0; i < 3; ++i) {
    uint8_t& byte = scales[SignedSixBitScales::first_at(g) + i * kTileRows + row];
    byte = static_cast<uint8_t>((byte & 63) | (factor >> 2 * i & 3) << 6);
  }
}

template <class Layout>
void put_factors(uint8_t* tile, int row, int32_t segment, const Factors& scale,
                 const Factors& minimum) {
  uint8_t* scales = tile + segment * Layout::kSegmentBytes;
  put_half(scales, row, scale.half);
  if constexpr (Layout::kMinimums) put_half(scales, kTileRows + row, minimum.half);
  for (int g = 0; g < Layout::kGroups; ++g) {
    if constexpr (Layout::kMinimums) {
      scales[FourBitScales::kFactors + kTileRows * g + row] =
          static_cast<uint8_t>(scale.factor[g] | minimum.factor[g] << 4);
    } else {
      put_signed_factor(scales, row, g, scale.factor[g]);
    }
  }
}

// A padding tile: codes 0, scales 1, minimums 0.
template <class Layout>
void clear_tile(int32_t cols, uint8_t* tile) {
  std::memset(tile, 0, FewBits<Layout>::tile_bytes(cols));
  Factors one = {1.0f, {}};
  for (int& factor : one.factor) factor = 1;
  for (int32_t group = 0; group < groups_in(cols); ++group) {
    for (int row = 0; row < kTileRows && group % Layout::kGroups == 0; ++row) {
      put_factors<Layout>(tile, row, group / Layout::kGroups, one, {});
    }
    if constexpr (Layout::kThird) {
      std::memset(tile + Layout::codes_at(group) + Layout::third_after(group), 0xFF, kBlockBytes);
    }
  }
}

}  // namespace

template <class Layout>
size_t FewBits<Layout>::tile_bytes(int64_t cols) {
  const int64_t groups = (cols + kN - 1) / kN;
  const int64_t segments = (groups + Layout::kGroups - 1) / Layout::kGroups;
  const int64_t stored = Layout::kThird ? (groups + 1) / 2 * 2 : groups;
  return static_cast<size_t>(segments * Layout::kScaleBytes + stored * Layout::kGroupBytes);
}

template <class Layout>
void FewBits<Layout>::read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t begin = 0; begin < cols; begin += kN) {
    const int32_t group = begin / kN;
    const uint8_t* codes = tile + Layout::codes_at(group) + row * 4;
    const int32_t n = std::min(cols - begin, kN);
    for (int32_t i = 0; i < n; ++i) {
      int code = codes[i % 4] >> (i / 4 * 2) & 3;
      if constexpr (Layout::kThird) {
        code |= (codes[Layout::third_after(group) + i % 4] >> (group % 2 * 4 + i / 4) & 1) << 2;
      }
      out[begin + i] = static_cast<float>(code - Layout::kOffset);
    }
  }
}

template <class Layout>
void FewBits<Layout>::pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols,
                           uint8_t* tile) {
  clear_tile<Layout>(cols, tile);
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t group = 0; group < groups_in(cols); ++group) {
      const int32_t begin = group * kN;
      put_codes<Layout>(codes + row * ld + begin, std::min(cols - begin, kN), row, group, tile);
    }
  }
}

template <class Layout>
void FewBits<Layout>::pack_scales(const float* scales, const float* minimums, int n_rows,
                                  int32_t cols, uint8_t* tile) {
  const int32_t n_groups = groups_in(cols);
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t g = 0; g < n_groups; g += Layout::kGroups) {
      const int n = std::min(n_groups - g, Layout::kGroups);
      const int64_t at = int64_t{row} * n_groups + g;
      const Factors scale = factors_of(kRange<Layout>, scales + at, nullptr, n);
      const Factors minimum = Layout::kMinimums && minimums != nullptr
                                  ? factors_of(kRange<Layout>, minimums + at, nullptr, n)
                                  : Factors{};
      put_factors<Layout>(tile, row, g / Layout::kGroups, scale, minimum);
    }
  }
}

template <class Layout>
Status FewBits<Layout>::quantise(const float* w, int64_t ld, int n_rows, int32_t cols,
                                 const float* importance, uint8_t* tile) {
  constexpr int kSegment = Layout::kGroups * kN;
  clear_tile<Layout>(cols, tile);
  SegmentFit fit;
  for (int row = 0; row < n_rows; ++row) {
    const float* weights = w + row * ld;
    MOE_TRY(check_weights(weights, cols, Layout::kMinimums ? kLargestTwoBits : kLargestThreeBits));
    for (int32_t begin = 0; begin < cols; begin += kSegment) {
      const int32_t n = std::min(cols - begin, kSegment);
      const float* part = importance != nullptr ? importance + begin : nullptr;
      if constexpr (Layout::kMinimums) {
        fit_two_bits(weights + begin, part, n, &fit);
      } else {
        fit_three_bits(weights + begin, part, n, &fit);
      }
      for (int32_t g = 0; g * kN < n; ++g) {
        put_codes<Layout>(fit.codes[g], std::min(n - g * kN, kN), row, begin / kN + g, tile);
      }
      put_factors<Layout>(tile, row, begin / kSegment, fit.scale, fit.minimum);
    }
  }
  return {};
}

template <class Layout>
int64_t FewBits<Layout>::find_invalid(const uint8_t* tile, size_t bytes) {
  constexpr size_t kHalves = kBlockBytes / (Layout::kMinimums ? 1 : 2);
  for (size_t at = 0; at < bytes; at += Layout::kSegmentBytes) {
    if (find_block(tile + at, kHalves, infinite_halves) >= 0) {
      return static_cast<int64_t>(at / kBlockBytes);
    }
  }
  return -1;
}

// Zero-mean weights with variance amplitude^2 / 3. The codes' mean is 1.5 in int2_k, which the
// minimum takes away, and -1/2 in int3_k, whose scales are negative in half of the groups.
template <class Layout>
void FewBits<Layout>::random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  constexpr float kMeanSquare = Layout::kThird ? 5.5f : 1.25f;
  constexpr int kMost = kRange<Layout>.most;
  constexpr int kLeast = kMost - kMost / 5;
  const float even = amplitude / std::sqrt(3 * kMeanSquare) / (0.5f * (kLeast + kMost));
  const auto n_segments = static_cast<int32_t>(bytes / Layout::kSegmentBytes);
  for (int32_t s = 0; s < n_segments; ++s) {
    std::memset(tile + s * Layout::kSegmentBytes, 0, kBlockBytes);
    for (int row = 0; row < kTileRows; ++row) {
      Factors scale = {as_half(even), {}};
      for (int& factor : scale.factor) {
        factor = kLeast + static_cast<int>((kMost - kLeast + 1) * random.uniform());
        if (!Layout::kMinimums && random.uniform() < 0.5f) factor = -factor;
      }
      Factors minimum;
      if constexpr (Layout::kMinimums) {
        minimum = scale;
        minimum.half = as_half(-1.5f * scale.half);
        minimum = as_packed(kRange<Layout>, minimum, Layout::kGroups);
      }
      put_factors<Layout>(tile, row, s, as_packed(kRange<Layout>, scale, Layout::kGroups), minimum);
    }
  }
}

template struct FewBits<Int2KLayout>;
template struct FewBits<Int3KLayout>;

}  // namespace moe
