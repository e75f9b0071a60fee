#pragma once
// Passes over the logits of a vocabulary.

#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

inline bool is_finite(float v) {
  return (__builtin_bit_cast(uint32_t, v) & 0x7f800000u) != 0x7f800000u;
}

/// log(sum(exp(logits))), in double, ascending index. MOE_ERR_NON_FINITE names a logit that is NaN
/// or infinite.
Status log_sum_exp(Span<const float> logits, double* out);

/// The index of the largest, the lowest of equals. None is NaN and there is at least one.
size_t largest_index(Span<const float> logits);

/// out[i] = exp((logits[i] - best) / temperature).
void probabilities(Span<const float> logits, float best, float temperature, float* out);

}  // namespace moe
