// SPDX-License-Identifier: MIT
#pragma once
// The counts of a service as text for Prometheus.

#include <string>

#include "include/moe_c.h"

namespace moe_cli {

std::string metrics_text(const moe_service_stats& stats);

}  // namespace moe_cli
