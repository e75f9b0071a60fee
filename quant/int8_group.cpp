// SPDX-License-Identifier: MIT
// Packs, reads, checks and randomly fills tiles of int8_group, and searches each group's scale.
#include "quant/int8_group.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/block_scan.h"
#include "quant/random.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

using Layout = Int8GroupLayout;

int32_t groups_in(int64_t cols) {
  return static_cast<int32_t>((cols + kTileGroup - 1) / kTileGroup);
}

int32_t inputs_of(int32_t group, int32_t cols) {
  return std::min(cols - group * kTileGroup, kTileGroup);
}

void put_scale(uint8_t* tile, int row, int32_t group, float scale) {
  const uint16_t half = f32_to_f16(scale);
  const int at = group % Layout::kGroups * kTileRows + row;
  std::memcpy(tile + Layout::scales_at(group) + 2 * at, &half, sizeof half);
}

// Scales of padding remain 1.
void clear_scales(uint8_t* tile, int32_t cols) {
  const int32_t n = (groups_in(cols) + Layout::kGroups - 1) / Layout::kGroups * Layout::kGroups;
  for (int32_t group = 0; group < n; ++group) {
    for (int row = 0; row < kTileRows; ++row) put_scale(tile, row, group, 1.0f);
  }
}

float largest_of(const WeightGroup& g) {
  float largest = 0;
  for (const float w : g.w) largest = std::max(largest, std::fabs(w));
  return largest;
}

// Rounds code-sized numbers half to even.
float whole(float v) { return v + 12582912.0f - 12582912.0f; }

float error_of(const WeightGroup& g, float scale) {
  const float inverse = 1.0f / scale;
  return group_error(g, [&](int i) { return whole(g.w[i] * inverse) * scale; });
}

// The largest weight's code is tried from 127 down to 112, or 96: six-bit codes, whose largest is
// often 28 to 32, are then reproduced exactly. Other scales are tried only if an f16 represents
// them exactly, that is, where lossless conversion is possible.
bool is_usual(int code) { return code >= 112 || code == 96; }

// False if the quotient needs more than the eleven significant bits of an f16: a cheap test that
// rules most codes out.
bool may_be_a_half(float largest, int code) {
  constexpr uint64_t kBelowEleven = (uint64_t{1} << 42) - 1;
  const double quotient = double{largest} / code;
  uint64_t bits;
  std::memcpy(&bits, &quotient, sizeof bits);
  return (bits & kBelowEleven) == 0;
}

// Smallest code of the largest weight. A power of two times any code is in 64..127, so codes of
// other formats are reproduced; but below f16's normal range half a scale may not be representable.
int least_code(float largest) { return largest < 64 * kLeastNormalHalf ? 1 : 64; }

// Weights too small for any of these get the smallest scale.
float best_scale(const WeightGroup& g) {
  const float largest = largest_of(g);
  struct {
    float scale = 0;
    float error = 0;
  } best;
  const int least = least_code(largest);
  best.error = largest > 0 ? std::numeric_limits<float>::max() : 0;
  for (int code = 127; code > 0 && best.error > 0; --code) {
    if (best.scale > 0 && code < least) break;
    const bool exact = best.scale > 0 && !is_usual(code);
    if (exact && !may_be_a_half(largest, code)) continue;
    const float scale = as_half(largest / static_cast<float>(code));
    const bool holds = scale > 0 && scale <= kLargestHalf && whole(largest * (1.0f / scale)) <= 127;
    if (!holds || (exact && static_cast<float>(code) * scale != largest)) continue;
    const float error = error_of(g, scale);
    if (best.scale == 0 || error < best.error) best = {scale, error};
  }
  return best.scale;
}

void put_codes(const WeightGroup& g, float scale, int32_t n, int8_t* codes) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (int32_t i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(whole(g.w[i] * inverse));
}

// One group of n_rows rows.
void quantise_group(const float* w, int64_t ld, int n_rows, int32_t group, int32_t n,
                    const float* importance, uint8_t* tile) {
  int8_t codes[kTileRows * kTileGroup] = {};
  for (int row = 0; row < n_rows; ++row) {
    const WeightGroup g = read_group(w + row * ld, importance, n);
    const float scale = best_scale(g);
    put_codes(g, scale, n, codes + row * kTileGroup);
    put_scale(tile, row, group, scale);
  }
  int8_pack(codes, kTileGroup, n_rows, kTileGroup, tile + Layout::codes_at(group));
}

}  // namespace

size_t int8_group_tile_bytes(int64_t cols) {
  const int64_t groups = (cols + kTileGroup - 1) / kTileGroup;
  const int64_t blocks = (groups + Layout::kGroups - 1) / Layout::kGroups;
  return static_cast<size_t>(blocks * kBlockBytes + groups * Layout::kGroupBytes);
}

void int8_group_read_row(const uint8_t* tile, int32_t cols, int row, float* out) {
  for (int32_t group = 0; group < groups_in(cols); ++group) {
    int8_read_row(tile + Layout::codes_at(group), inputs_of(group, cols), row,
                  out + group * kTileGroup);
  }
}

void int8_group_pack(const int8_t* codes, int64_t ld, int n_rows, int32_t cols, uint8_t* tile) {
  clear_scales(tile, cols);
  for (int32_t group = 0; group < groups_in(cols); ++group) {
    uint8_t* to = tile + Layout::codes_at(group);
    std::memset(to, 0, Layout::kGroupBytes);
    int8_pack(codes + group * kTileGroup, ld, n_rows, inputs_of(group, cols), to);
  }
}

void int8_group_pack_scales(const float* scales, const float*, int n_rows, int32_t cols,
                            uint8_t* tile) {
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t group = 0; group < groups_in(cols); ++group) {
      put_scale(tile, row, group, *scales++);
    }
  }
}

Status int8_group_quantise(const float* w, int64_t ld, int n_rows, int32_t cols,
                           const float* importance, uint8_t* tile) {
  for (int row = 0; row < n_rows; ++row) {
    MOE_TRY(check_weights(w + row * ld, cols, 127 * kLargestHalf));
  }
  clear_scales(tile, cols);
  for (int32_t group = 0; group < groups_in(cols); ++group) {
    const int32_t begin = group * kTileGroup;
    quantise_group(w + begin, ld, n_rows, group, inputs_of(group, cols),
                   importance != nullptr ? importance + begin : nullptr, tile);
  }
  return {};
}

int64_t int8_group_find_invalid(const uint8_t* tile, size_t bytes) {
  for (size_t at = 0; at < bytes; at += Layout::kSegmentBytes) {
    if (find_block(tile + at, kBlockBytes, infinite_halves) >= 0) {
      return static_cast<int64_t>(at / kBlockBytes);
    }
    const size_t codes = at + kBlockBytes;
    const size_t end = std::min<size_t>(bytes, at + Layout::kSegmentBytes);
    const int64_t bad = int8_find_invalid(tile + codes, end - codes);
    if (bad >= 0) return static_cast<int64_t>(codes / kBlockBytes) + bad;
  }
  return -1;
}

void int8_group_random_tile(Random& random, size_t bytes, float amplitude, uint8_t* tile) {
  int8_random_tile(random, bytes, amplitude, tile);
  const auto n_segments = static_cast<int32_t>(bytes / Layout::kSegmentBytes);
  for (int32_t group = 0; group < n_segments * Layout::kGroups; ++group) {
    for (int row = 0; row < kTileRows; ++row) {
      put_scale(tile, row, group, amplitude / 127 * (0.9f + 0.2f * random.uniform()));
    }
  }
}

}  // namespace moe
