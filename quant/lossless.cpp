#include "quant/lossless.h"

#include "quant/half.h"

namespace moe {
namespace {

constexpr uint32_t kNotTernary = 0xFFFFFFFFu;

// The bits of the one magnitude of n weights: 0 when all are zero, kNotTernary when there are two.
uint32_t one_magnitude(const float* w, int32_t n) {
  uint32_t found = 0;
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t bits = f32_to_bits(w[i]) & 0x7FFFFFFFu;
    if (bits == 0 || bits == found) continue;
    if (found != 0 || bits >= 0x7F800000u) return kNotTernary;
    found = bits;
  }
  return found;
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
  if (magnitude != kNotTernary) {  // then every group of the row fits too
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
  for (int32_t i = 0; i < cols; ++i) {
    codes[i] = static_cast<int8_t>(static_cast<int>(row[i] > 0) - static_cast<int>(row[i] < 0));
  }
  if (fit.scale_kind == ScaleKind::kRow) *scales = scale_of(row, cols);
  if (fit.scale_kind != ScaleKind::kGroup) return;
  for (int32_t k = 0; k < cols; k += fit.group) {
    *scales++ = scale_of(row + k, cols - k < fit.group ? cols - k : fit.group);
  }
}

}  // namespace moe
