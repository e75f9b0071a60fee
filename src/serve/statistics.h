// SPDX-License-Identifier: MIT
#pragma once
// The counts of a service, for people.

#include <vector>

#include "src/serve/expert_counts.h"
#include "src/serve/host.h"

namespace moe_serve {

/// Adds the requests and tokens of the queue for vectors to those of the texts.
void add_counts(const moe_service_stats& vectors, moe_service_stats& stats);
/// The answer of /statistics.
Json statistics_json(const Host& host, const moe_service_stats& stats,
                     const std::vector<ExpertCounts::Layer>& layers);

}  // namespace moe_serve
