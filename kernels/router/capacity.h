// SPDX-License-Identifier: MIT
#pragma once
// The number of tokens that an expert serves. Compiled for host and device.

#include "kernels/math.h"

namespace moe {

/// Tokens that one expert may serve: min(n_tokens, max(min_capacity, ceil(gamma n_tokens / N)))
/// (XMoE, Eq. 3), with the ceiling guarded against rounding; -1 if gamma is 0: no capacity.
MOE_HD_CALL int32_t capacity_of(int32_t n_tokens, int32_t n_experts, double gamma,
                                int32_t min_capacity) {
  if (!(gamma > 0)) return -1;
  const double v = gamma * n_tokens / n_experts;
  const double guarded = v - 1e-6 * (v > 1 ? v : 1);
  if (guarded >= n_tokens) return n_tokens;
  int32_t c = guarded > 0 ? static_cast<int32_t>(guarded) : 0;
  if (guarded > c) ++c;
  if (c < min_capacity) c = min_capacity;
  return c < n_tokens ? c : n_tokens;
}

}  // namespace moe
