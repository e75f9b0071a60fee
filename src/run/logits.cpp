// SPDX-License-Identifier: MIT
// Finds the largest logit, sums exponentials exactly, and reports a logit that is not finite.
#include "src/run/logits.h"

#include <algorithm>

#include "kernels/math_four.h"
#include "kernels/sample.h"
#include "src/base/inline.h"

namespace moe {
namespace {

using L = FourLanes;
constexpr size_t kWidth = 4;
constexpr size_t kUnroll = 4;  // independent vectors per step
constexpr size_t kStep = kWidth * kUnroll;

float largest(std::span<const float> x) {
  float best = x[0];
  size_t i = 0;
  if (x.size() >= kStep) {
    L::F top[kUnroll];
    for (size_t u = 0; u < kUnroll; ++u) top[u] = L::load(x.data() + kWidth * u);
    for (i = kStep; i + kStep <= x.size(); i += kStep) {
      for (size_t u = 0; u < kUnroll; ++u) {
        const L::F v = L::load(x.data() + i + kWidth * u);
        top[u] = L::select_lt(top[u], v, v, top[u]);
      }
    }
    for (const L::F& t : top) {
      for (size_t j = 0; j < kWidth; ++j) best = t[j] > best ? t[j] : best;
    }
  }
  for (; i < x.size(); ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// x - x is 0 for a finite x and NaN otherwise.
bool all_finite(std::span<const float> x) {
  L::F sum[kUnroll] = {};
  size_t i = 0;
  for (; i + kStep <= x.size(); i += kStep) {
    for (size_t u = 0; u < kUnroll; ++u) {
      const L::F v = L::load(x.data() + i + kWidth * u);
      sum[u] = L::add(sum[u], L::sub(v, v));
    }
  }
  float total = 0;
  for (const L::F& s : sum) {
    for (size_t j = 0; j < kWidth; ++j) total += s[j];
  }
  for (; i < x.size(); ++i) total += x[i] - x[i];
  return total == 0;
}

// Exponents are at least this: e^-32 is below one unit of a weight, and much smaller powers are
// denormal numbers, which are slow. With a grammar most logits are -inf.
constexpr float kLeastExponent = -32;

L::F exp_at_least(L::F x) {
  const L::F least = L::splat(kLeastExponent);
  return exp_lanes<L>(L::select_lt(x, least, least, x));
}

}  // namespace

Status non_finite_logit(size_t token) {
  return Status::error(MOE_ERR_NON_FINITE, "logit of token %zu is not a finite number", token);
}

Status check_finite(std::span<const float> logits) {
  if (all_finite(logits)) return {};
  size_t i = 0;
  while (i + 1 < logits.size() && is_finite(logits[i])) ++i;
  return non_finite_logit(i);
}

double log_sum_exp(float best, uint64_t weights, size_t vocab_size) {
  const float units = weight_units(static_cast<int32_t>(vocab_size));
  return static_cast<double>(best) +
         log_double(static_cast<double>(weights) / static_cast<double>(units));
}

namespace {

// The sum of token_weight(exp(x[i] - best)).
uint64_t sum_weights(std::span<const float> x, float best, float units) {
  const L::F subtract = L::splat(best);
  float e[kStep];
  uint64_t sum = 0;
  size_t i = 0;
  for (; i + kStep <= x.size(); i += kStep) {
    for (size_t u = 0; u < kUnroll; ++u) {
      const L::F v = L::sub(L::load(x.data() + i + kWidth * u), subtract);
      L::store(e + kWidth * u, exp_at_least(v));
    }
    for (const float p : e) sum += token_weight(p, units);
  }
  for (; i < x.size(); ++i) sum += token_weight(exp_float(x[i] - best), units);
  return sum;
}

}  // namespace

Status log_sum_exp(std::span<const float> logits, double* out) {
  MOE_TRY(check_finite(logits));
  const float best = largest(logits);
  const float units = weight_units(static_cast<int32_t>(logits.size()));
  const uint64_t sum = sum_weights(logits, best, units);
  *out = log_sum_exp(best, sum, logits.size());
  return {};
}

Status log_probability(std::span<const float> logits, int32_t token, double* out) {
  double log_sum = 0;
  MOE_TRY(log_sum_exp(logits, &log_sum));
  *out = static_cast<double>(logits[static_cast<size_t>(token)]) - log_sum;
  return {};
}

size_t largest_index(std::span<const float> logits) {
  const float best = largest(logits);
  size_t i = 0;
  while (i + 1 < logits.size() && !(logits[i] == best)) ++i;
  return i;
}

void probabilities(std::span<const float> logits, float best, float temperature, float* out) {
  const L::F subtract = L::splat(best);
  const L::F divide = L::splat(temperature);
  size_t i = 0;
  for (; i + kStep <= logits.size(); i += kStep) {
    for (size_t u = 0; u < kUnroll; ++u) {
      const size_t at = i + kWidth * u;
      L::store(out + at,
               exp_at_least(L::div(L::sub(L::load(logits.data() + at), subtract), divide)));
    }
  }
  for (; i < logits.size(); ++i) {
    out[i] = exp_float(std::max((logits[i] - best) / temperature, kLeastExponent));
  }
}

}  // namespace moe
