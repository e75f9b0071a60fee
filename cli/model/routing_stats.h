// SPDX-License-Identifier: MIT
#pragma once
// Statistics of --stats: the experts that were used, and the activations inside.

#include "cli/common.h"

namespace moe_cli {

/// One object per MoE layer. The session was counting.
Json routing_json(const moe_model* model, const moe_session* session);

/// One object for each layer with an FFN: its inner activations, and the share above zero.
Json activations_json(const moe_model* model, const moe_session* session);

/// Both as a table on stderr, a line a layer; of many MoE layers the most uneven ones, of many
/// dense ones those with the fewest activations above zero.
void print_stats(const Json& routing, const Json& activations);

/// Skipped uses of experts if may_skip(), and the mean probability that a token lost per layer.
Json skipped_json(const Json& layers);
void print_skipped(const Json& skipped);
/// The same for all sessions together; nothing unless may_skip().
void report_skipped(const ModelOptions& o, const moe_model* model,
                    const std::vector<moe_session*>& sessions);

}  // namespace moe_cli
