// SPDX-License-Identifier: MIT
// Tries scales for each row, or the threshold of ternary codes, and keeps the one of least weighted
// error.
#include "src/convert/weights/weighted.h"

#include <algorithm>
#include <cmath>

#include "quant/half.h"

namespace moe {
namespace {

constexpr int kSteps = 24;  // scales tried per row, each 1 % smaller

struct RowFit {
  double error = 0;
  double code_weight = 0;   // sum of importance * code * weight
  double code_squared = 0;  // sum of importance * code^2
};

float nearest_code(float w, float scale, float most) {
  const float wanted = w / scale;
  return std::nearbyint(std::min(std::max(wanted, -most), most));
}

RowFit fit_row(const float* w, const float* importance, int32_t n, float scale, float most) {
  RowFit fit;
  for (int32_t i = 0; i < n; ++i) {
    const float code = nearest_code(w[i], scale, most);
    const auto difference = double{w[i]} - double{code * scale};
    const double h = importance[i];
    fit.error += h * difference * difference;
    fit.code_weight += h * double{code} * double{w[i]};
    fit.code_squared += h * double{code} * double{code};
  }
  return fit;
}

}  // namespace

void refine_row(const float* w, const float* importance, int32_t n, int max_code, int8_t* codes,
                float* scale) {
  const auto most = static_cast<float>(max_code);
  float best = *scale;
  double error = fit_row(w, importance, n, best, most).error;
  for (int step = 0; step < kSteps && error > 0; ++step) {
    const float cut = *scale * (1.0f - 0.01f * static_cast<float>(step));
    const RowFit first = fit_row(w, importance, n, cut, most);
    const double exact = first.code_squared > 0 ? first.code_weight / first.code_squared : 0;
    for (const float candidate : {cut, static_cast<float>(exact)}) {
      if (!std::isnormal(candidate) || candidate < 0) continue;
      const double found = fit_row(w, importance, n, candidate, most).error;
      if (!(found < error)) continue;
      error = found;
      best = candidate;
    }
  }
  if (best == *scale) return;
  for (int32_t i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(nearest_code(w[i], best, most));
  *scale = best;
}

void TernaryScale::add(const float* w, const float* importance, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(w[i]);
    Bin& bin = bins_[f32_to_bits(magnitude) >> kShift];
    bin.importance += double{importance[i]};
    bin.weight += double{importance[i]} * double{magnitude};
  }
}

// Codes are 0 below half a scale. With H and W the sums above it, the error is that of zeros minus
// 2 scale W - scale^2 H.
double TernaryScale::best(double absmean) const {
  double best = absmean, gained = -INFINITY;
  double importance = 0, weight = 0;
  for (int i = kBins - 1; i > 0; --i) {
    const double least = bits_to_f32(static_cast<uint32_t>(i) << kShift);
    const double scale = 2 * least;
    importance += bins_[static_cast<size_t>(i)].importance;
    weight += bins_[static_cast<size_t>(i)].weight;
    const double gain = 2 * scale * weight - scale * scale * importance;
    if (!(gain > gained) || !(scale >= 1e-5) || !std::isfinite(scale)) continue;
    gained = gain;
    best = scale;
  }
  return gained > 0 ? best : absmean;
}

}  // namespace moe
