#pragma once
// What --stats tells about the experts that were used.

#include "cli/common.h"

namespace moe_cli {

/// One object for each MoE layer. The session was counting.
Json routing_json(const moe_model* model, const moe_session* session);

/// That as a table on stderr, a line a layer; of many layers the most uneven ones.
void print_routing(const Json& layers);

}  // namespace moe_cli
