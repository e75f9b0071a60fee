// SPDX-License-Identifier: MIT
#pragma once
// From hidden states to logits and log-probabilities.

#include "src/run/forward.h"

namespace moe {

/// logits = cap(logit_multiplier * head(final_norm(x))) of n rows in device memory.
void compute_head(SessionState& lead, const float* x, int32_t n, float* logits);

/// The same with another norm than the final one.
void compute_head(SessionState& lead, const Norm& norm, const float* x, int32_t n, float* logits);

/// logprobs[i] = log_probability() of targets[i] in row i of lead.work.scratch_logits.
/// MOE_ERR_NON_FINITE names a logit that is not finite.
Status read_scores(SessionState& lead, std::span<const int32_t> targets, double* logprobs);

}  // namespace moe
