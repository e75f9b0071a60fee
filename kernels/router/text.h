// SPDX-License-Identifier: MIT
#pragma once
// Parses routers: a layer's parameter, and a run-time override.

#include <string_view>

#include "kernels/router/router.h"
#include "src/base/status.h"

namespace moe {

/// Parses the router of a single layer: a name with its number, then options ("topk:2",
/// "threshold:0.9,max_k=4", "cosine:1,tau=0.07", "topk:2,renormalise", "sparsemixer"). Ranges are
/// not checked. MOE_ERR_ARGUMENT lists the accepted forms.
Status parse_router(std::string_view text, RouterConfig* out);

/// Applies `text` to `config`. Text: "threshold:T", "topk:K" or neither, then any of "gamma=G",
/// "min_capacity=C", "min_k=A", "max_k=B", "resident=P", separated by commas
/// ("threshold:0.9,max_k=8"; "gamma=1.25"). Selection uses the softmax over all experts; the weight
/// rule is the router's own. MOE_ERR_UNSUPPORTED for a router without a softmax over all experts,
/// MOE_ERR_ARGUMENT for an invalid text, MOE_ERR_RANGE for a number out of range; `out` is then
/// unchanged.
Status override_router(const RouterConfig& config, int32_t n_experts, std::string_view text,
                       RouterConfig* out);
/// The selection rules of an override: "topk:K, threshold:T".
const char* override_routers();

}  // namespace moe
