// SPDX-License-Identifier: MIT
#pragma once
// Passes over the logits of a vocabulary.

#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

/// MOE_ERR_NON_FINITE names a logit that is NaN or infinite.
Status check_finite(std::span<const float> logits);
Status non_finite_logit(size_t token);

/// log(sum(exp(logits))) from weights (kernels/sample.h), accurate to 1e-6. Errors as
/// check_finite().
Status log_sum_exp(std::span<const float> logits, double* out);
/// log(softmax(logits)[token]); every reported log-probability is its nearest float. Errors as
/// check_finite().
Status log_probability(std::span<const float> logits, int32_t token, double* out);
/// log(sum(exp())) from the largest logit and the sum of all weights at temperature 1.
double log_sum_exp(float best, uint64_t weights, size_t vocab_size);

/// Index of the largest, the lowest of equals. No NaN, at least one element.
size_t largest_index(std::span<const float> logits);

/// out[i] = exp((logits[i] - best) / temperature), at least e^-32, which is no weight.
void probabilities(std::span<const float> logits, float best, float temperature, float* out);

}  // namespace moe
