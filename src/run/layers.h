// SPDX-License-Identifier: MIT
#pragma once
// The layers of the forward pass: attention, cross attention and FFN blocks on the residual stream.

#include "src/run/batch.h"

namespace moe {

/// Runs layers [first, end) on lead.work.x (batch.n_rows, d_model). Stops early at a cancel.
void run_layers(SessionState& lead, const Batch& batch, int32_t first, int32_t end);

/// Computes what each layer gets of the tokens (LayerInputConfig) from their embeddings in
/// lead.work.x, if the model has that.
void compute_inputs(SessionState& lead, const Batch& batch);

/// Computes the keys and values of a layer's cross attention from the encoder's output in
/// lead.work.x, and stores them in the session's cache.
void store_source(SessionState& lead, const Batch& batch, int32_t layer);

}  // namespace moe
