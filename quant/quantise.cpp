#include "quant/quantise.h"

#include <algorithm>
#include <cstring>

#include "quant/activation.h"
#include "quant/half.h"

namespace moe {
namespace {

constexpr int64_t kChunk = 64;  // a loop of this length becomes vector instructions
constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
constexpr uint32_t kInfinity = 0x7F800000u;

// The largest |w| as bits, which order as magnitudes do; NaN and infinity come last.
uint32_t largest_magnitude(const float* w, int64_t n) {
  uint32_t largest[kChunk] = {};
  int64_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    for (int64_t j = 0; j < kChunk; ++j) {
      const uint32_t bits = f32_to_bits(w[i + j]) & kMagnitude;
      largest[j] = bits > largest[j] ? bits : largest[j];
    }
  }
  uint32_t out = 0;
  for (; i < n; ++i) out = std::max(out, f32_to_bits(w[i]) & kMagnitude);
  for (const uint32_t bits : largest) out = std::max(out, bits);
  return out;
}

// In float32, as PyTorch divides: halves of bf16 weights are ties, which must fall alike. Adding
// and taking away 1.5 * 2^23 rounds what is below 2^22 half to even.
int32_t int8_code(float w, float scale) {
  constexpr float kRound = 12582912.0f;
  float v = w / scale;
  v = v < 127.0f ? v : 127.0f;
  v = v > -127.0f ? v : -127.0f;
  return static_cast<int32_t>((v + kRound) - kRound);
}

bool finite(float x) { return (f32_to_bits(x) & 0x7F800000u) != 0x7F800000u; }

Status non_finite(int64_t index) {
  return Status::error(MOE_ERR_NON_FINITE, "weight %lld: found NaN or infinity",
                       static_cast<long long>(index));
}

}  // namespace

Status AbsMean::add(const float* w, int64_t n) {
  if (largest_magnitude(w, n) >= kInfinity) {
    int64_t i = 0;
    while (finite(w[i])) ++i;
    return non_finite(n_ + i);
  }
  for (int64_t i = 0; i < n; ++i) sum_ += static_cast<double>(w[i] < 0 ? -w[i] : w[i]);
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
  const auto code = [inverse](float weight) {
    const double v = static_cast<double>(weight) * inverse;
    return static_cast<int8_t>(static_cast<int>(v > 0.5) - static_cast<int>(v < -0.5));
  };
  int64_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    int8_t chunk[kChunk];
    for (int64_t j = 0; j < kChunk; ++j) chunk[j] = code(w[i + j]);
    std::memcpy(codes + i, chunk, sizeof chunk);
  }
  for (; i < n; ++i) codes[i] = code(w[i]);
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
  const uint32_t bits = largest_magnitude(w, n);
  if (bits >= kInfinity) {
    int64_t i = 0;
    while (finite(w[i])) ++i;
    return non_finite(i);
  }
  const float amax = bits_to_f32(bits);
  // A largest weight among the smallest denormals has no scale: its row counts as zero.
  *scale = amax / 127.0f > 0.0f ? amax / 127.0f : 1.0f;
  const float divisor = *scale;
  int64_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    int8_t chunk[kChunk];  // bytes could lie on anything: a local array cannot lie on the weights
    for (int64_t j = 0; j < kChunk; ++j) {
      chunk[j] = static_cast<int8_t>(int8_code(w[i + j], divisor));
    }
    std::memcpy(codes + i, chunk, sizeof chunk);
  }
  for (; i < n; ++i) codes[i] = static_cast<int8_t>(int8_code(w[i], divisor));
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
