// SPDX-License-Identifier: MIT
#pragma once
// The outputs of the forward pass: logits, log-probabilities and hidden states.

#include "src/run/batch.h"

namespace moe {

/// Computes the logits of n rows from `row` on into `logits` in device memory. A single row that
/// remains on the device goes to its session's memory instead.
void run_head(SessionState& lead, const Batch& batch, int32_t row, int32_t n, float* logits);

/// Delivers row `row` of the batch, which is row `from` of `rows`, to its session.
Status deliver_logits(SessionState& lead, const Batch& batch, int32_t row, int32_t from,
                      const float* rows);

/// Norms a decoder's hidden states in place, since a part that asks for them needs nothing else.
/// Not for encoders, whose head may still read them.
void norm_hidden(SessionState& lead, const Batch& batch);

/// Computes and delivers what the parts of a pass that is no decode step ask for, after its layers:
/// scores, then logits, then hidden states.
Status write_outputs(SessionState& lead, const Batch& batch);

}  // namespace moe
