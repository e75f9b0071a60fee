// SPDX-License-Identifier: MIT
#pragma once
// The counts of a service as text for Prometheus.

#include <string>

#include "cli/serve/served_models.h"

namespace moe_cli {

/// With several models each value has the model's name as its label; only open ones have some.
std::string metrics_text(ServedModels& models);

}  // namespace moe_cli
