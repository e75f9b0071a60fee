#pragma once
// What comes of hidden states: logits, and what these say of given tokens.

#include "src/run/forward.h"

namespace moe {

/// logits = cap(logit_multiplier * head(final_norm(x))) of n rows, all of them device memory.
void compute_head(SessionState& lead, const float* x, int32_t n, float* logits);

/// logprobs[i] = log_probability() of targets[i] in row i of lead.work.late_logits.
/// MOE_ERR_NON_FINITE names a logit that is no number.
Status read_scores(SessionState& lead, std::span<const int32_t> targets, double* logprobs);

}  // namespace moe
