// SPDX-License-Identifier: MIT
// Compares the magnitudes of weights as bits, row after row, and keeps every kind of scale that is
// still possible.
#include "quant/lossless.h"

#include "quant/half.h"

namespace moe {
namespace {

constexpr uint32_t kNotTernary = 0xFFFFFFFFu;

constexpr int32_t kChunk = 64;  // a loop of this length is vectorised

int32_t magnitude_bits(float w) { return static_cast<int32_t>(f32_to_bits(w) & 0x7FFFFFFFu); }

// The bits of the common magnitude of n weights and the preceding ones (0: all were zero): 0 if all
// are zero, kNotTernary if there are two. N: n if known at compile time.
template <int32_t N>
uint32_t one_magnitude_of(const float* w, int32_t n, uint32_t before) {
  const int32_t count = N > 0 ? N : n;
  int32_t largest = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t bits = magnitude_bits(w[i]);
    largest = bits > largest ? bits : largest;
  }
  if (largest == 0) return before;
  if (largest >= 0x7F800000 || (before != 0 && before != static_cast<uint32_t>(largest))) {
    return kNotTernary;
  }
  int32_t different = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t bits = magnitude_bits(w[i]);
    different |= bits == 0 ? 0 : bits ^ largest;
  }
  return different == 0 ? static_cast<uint32_t>(largest) : kNotTernary;
}

uint32_t one_magnitude(const float* w, int32_t n) {
  uint32_t found = 0;
  int32_t i = 0;
  for (; i + kChunk <= n && found != kNotTernary; i += kChunk) {
    found = one_magnitude_of<kChunk>(w + i, kChunk, found);
  }
  if (i < n && found != kNotTernary) found = one_magnitude_of<0>(w + i, n - i, found);
  return found;
}

template <int32_t N>
void signs(const float* w, int32_t n, int8_t* codes) {
  for (int32_t i = 0; i < (N > 0 ? N : n); ++i) {
    codes[i] = static_cast<int8_t>(static_cast<int>(w[i] > 0) - static_cast<int>(w[i] < 0));
  }
}

bool groups_fit(const float* row, int32_t cols, int32_t group) {
  for (int32_t k = 0; k < cols; k += group) {
    if (one_magnitude(row + k, cols - k < group ? cols - k : group) == kNotTernary) return false;
  }
  return true;
}

float scale_of(const float* w, int32_t n) {
  const uint32_t bits = one_magnitude(w, n);
  return bits == 0 ? 1.0f : bits_to_f32(bits);
}

}  // namespace

void TernaryDetector::add_row(const float* row) {
  const uint32_t magnitude = tensor_ || row_ ? one_magnitude(row, cols_) : kNotTernary;
  if (magnitude != kNotTernary) {  // then every group of the row matches too
    if (magnitude == 0) return;
    if (magnitude_ == 0) magnitude_ = magnitude;
    if (magnitude_ != magnitude) tensor_ = false;
    return;
  }
  tensor_ = false;
  row_ = false;
  while (largest_group_ != 0 && !groups_fit(row, cols_, largest_group_)) {
    largest_group_ = largest_group_ == 64 ? 0 : largest_group_ / 2;
  }
}

TernaryFit TernaryDetector::fit() const {
  if (tensor_) {
    return {ScaleKind::kTensor, 0, magnitude_ == 0 ? 1.0f : bits_to_f32(magnitude_)};
  }
  if (row_) return {ScaleKind::kRow, 0, 1.0f};
  if (largest_group_ != 0) return {ScaleKind::kGroup, largest_group_, 1.0f};
  return {};
}

void ternary_split(const TernaryFit& fit, const float* row, int32_t cols, int8_t* codes,
                   float* scales) {
  int32_t i = 0;
  for (; i + kChunk <= cols; i += kChunk) signs<kChunk>(row + i, kChunk, codes + i);
  signs<0>(row + i, cols - i, codes + i);
  if (fit.scale_kind == ScaleKind::kRow) *scales = scale_of(row, cols);
  if (fit.scale_kind != ScaleKind::kGroup) return;
  for (int32_t k = 0; k < cols; k += fit.group) {
    *scales++ = scale_of(row + k, cols - k < fit.group ? cols - k : fit.group);
  }
}

}  // namespace moe
