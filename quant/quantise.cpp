#include "quant/quantise.h"

#include "quant/activation.h"
#include "quant/half.h"
#include "quant/rounding.h"

namespace moe {
namespace {

bool finite(float x) { return (f32_to_bits(x) & 0x7F800000u) != 0x7F800000u; }

Status non_finite(int64_t index) {
  return Status::error(MOE_ERR_NON_FINITE, "weight %lld: found NaN or infinity",
                       static_cast<long long>(index));
}

}  // namespace

Status AbsMean::add(const float* w, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!finite(w[i])) return non_finite(n_ + i);
    sum_ += static_cast<double>(w[i] < 0 ? -w[i] : w[i]);
  }
  n_ += n;
  return {};
}

Result<double> AbsMean::scale() const {
  if (n_ == 0) return Status::error(MOE_ERR_SHAPE, "empty weight");
  const double mean = sum_ / static_cast<double>(n_);
  return mean > 1e-5 ? mean : 1e-5;
}

void ternary_codes(const float* w, int64_t n, double scale, int8_t* codes) {
  // 0.5 rounds to 0 and everything above it to at least 1, which is where the clip ends it.
  const double inverse = 1.0 / scale;
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(w[i]) * inverse;
    codes[i] = static_cast<int8_t>(static_cast<int>(v > 0.5) - static_cast<int>(v < -0.5));
  }
}

Status absmean_ternary(const float* w, int64_t rows, int64_t cols, int8_t* codes, float* scale) {
  AbsMean mean;
  MOE_TRY(mean.add(w, rows * cols));
  MOE_ASSIGN(const double exact, mean.scale());
  ternary_codes(w, rows * cols, exact, codes);
  *scale = static_cast<float>(exact);
  return {};
}

Status int8_row(const float* w, int64_t n, int8_t* codes, float* scale) {
  float amax = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!finite(w[i])) return non_finite(i);
    const float magnitude = w[i] < 0 ? -w[i] : w[i];
    if (magnitude > amax) amax = magnitude;
  }
  // A largest weight among the smallest denormals has no scale: its row counts as zero.
  *scale = amax / 127.0f > 0.0f ? amax / 127.0f : 1.0f;
  for (int64_t i = 0; i < n; ++i) {
    // In float32, as PyTorch divides: halves of bf16 weights are ties, which must fall alike.
    double v = round_half_even(static_cast<double>(w[i] / *scale));
    v = v < 127.0 ? v : 127.0;
    codes[i] = static_cast<int8_t>(v > -127.0 ? v : -127.0);
  }
  return {};
}

Status int8_rows(const float* w, int64_t rows, int64_t cols, int8_t* codes, float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    const Status s = int8_row(w + row * cols, cols, codes + row * cols, scales + row);
    if (!s.ok()) return s.with_context("row %lld", static_cast<long long>(row));
  }
  return {};
}

Status absmax_int8(const float* x, int64_t rows, int64_t cols, int8_t* codes, float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    const ActScale s = quantise_activations(x + row * cols, cols, -128, codes + row * cols);
    if (!(s.scale > 0)) {
      return Status::error(MOE_ERR_NON_FINITE, "activations, row %lld: found NaN or infinity",
                           static_cast<long long>(row));
    }
    scales[row] = s.to_code;
  }
  return {};
}

}  // namespace moe
