// SPDX-License-Identifier: MIT
// The rounding of ternary and int8 codes, exactly as PyTorch rounds, and the mean magnitude of a
// streamed matrix.
#include "quant/quantise.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "quant/half.h"
#include "src/base/inline.h"

namespace moe {
namespace {

constexpr int64_t kChunk = 64;  // a loop of this length is vectorised
constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
constexpr uint32_t kInfinity = 0x7F800000u;

// The largest |w| as bits, which sort like magnitudes; NaN and infinity are largest.
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

// In float32, like PyTorch's division: halves of bf16 weights are ties and must round alike. Adding
// 1.5 * 2^23 rounds values below 2^22 half to even and leaves the code in the lowest byte.
int8_t rounded(float v) { return static_cast<int8_t>(f32_to_bits(v + 12582912.0f) & 0xFFu); }

// With a normal scale no quotient reaches 127.5; with a denormal one it may.
int8_t clipped(float v) {
  if (v > 127.0f) return 127;
  return v < -127.0f ? int8_t{-127} : rounded(v);
}

Status non_finite(int64_t index) {
  return Status::error(MOE_ERR_NON_FINITE, "weight %lld: found NaN or infinity",
                       static_cast<long long>(index));
}

}  // namespace

Status AbsMean::add(const float* w, int64_t n) {
  if (largest_magnitude(w, n) >= kInfinity) {
    int64_t i = 0;
    while (is_finite(w[i])) ++i;
    return non_finite(n_ + i);
  }
  const auto magnitude = [w](int64_t i) {
    return static_cast<double>(bits_to_f32(f32_to_bits(w[i]) & kMagnitude));
  };
  int64_t i = 0;
  for (; i < n && (n_ + i) % kSums != 0; ++i) sums_[(n_ + i) % kSums] += magnitude(i);
  double sums[kSums];
  std::memcpy(sums, sums_, sizeof sums);
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += magnitude(i + j);
  }
  std::memcpy(sums_, sums, sizeof sums);
  for (; i < n; ++i) sums_[(n_ + i) % kSums] += magnitude(i);
  n_ += n;
  return {};
}

Result<double> AbsMean::scale() const {
  if (n_ == 0) return Status::error(MOE_ERR_SHAPE, "empty weight");
  double sum = 0;
  for (const double part : sums_) sum += part;
  const double mean = sum / static_cast<double>(n_);
  return mean > 1e-5 ? mean : 1e-5;
}

void ternary_codes(const float* w, int64_t n, double scale, int8_t* codes) {
  // 0.5 rounds to 0 and larger values to at least 1, where the clip applies.
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

Status int8_row(const float* w, int64_t n, int8_t* codes, float* scale) {
  const uint32_t bits = largest_magnitude(w, n);
  if (bits >= kInfinity) {
    int64_t i = 0;
    while (is_finite(w[i])) ++i;
    return non_finite(i);
  }
  const float amax = bits_to_f32(bits);
  // If the largest weight is among the smallest denormals there is no scale: the row is zero.
  *scale = amax / 127.0f > 0.0f ? amax / 127.0f : 1.0f;
  const float divisor = *scale;
  if (divisor < std::numeric_limits<float>::min()) {
    for (int64_t k = 0; k < n; ++k) codes[k] = clipped(w[k] / divisor);
    return {};
  }
  int64_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    int8_t chunk[kChunk];  // bytes may alias anything; a local array cannot alias the weights
    for (int64_t j = 0; j < kChunk; ++j) chunk[j] = rounded(w[i + j] / divisor);
    std::memcpy(codes + i, chunk, sizeof chunk);
  }
  for (; i < n; ++i) codes[i] = rounded(w[i] / divisor);
  return {};
}

Status quantise_tile(const WeightFormat& format, const float* w, int32_t first, int n, int32_t cols,
                     const float* importance, uint8_t* tile) {
  Status status = format.quantise_tile(w, cols, n, cols, importance, tile);
  // Row by row, to find the faulty one.
  for (int row = 0; !status.ok() && row < n; ++row) {
    const Status one =
        format.quantise_tile(w + int64_t{row} * cols, cols, 1, cols, importance, tile);
    if (!one.ok()) return one.with_context("row %d", first + row);
  }
  return status;
}

}  // namespace moe
