// SPDX-License-Identifier: MIT
#pragma once
// moe_router, the description of a router in moe_c.h: as text, as a layer's parameter, and as a
// session's override.

#include <string_view>

#include "kernels/router/router.h"
#include "src/base/status.h"

namespace moe {

/// Reads a kind with its number, numbers by name, a rule of the weights and a gate, separated by
/// commas: "topk:2,renormalised", "threshold:0.9,max_k=8", "cosine:1,tau=0.07", "gamma=1.25". What
/// is not said is 0 or null, all of it for ""; texts are static. Ranges are not checked.
/// MOE_ERR_ARGUMENT lists the accepted forms, MOE_ERR_RANGE refuses a 0 that would be "not said".
Status parse_router(std::string_view text, moe_router* out);

struct RouterText {
  char text[512] = {};
  size_t n_bytes = 0;
};
/// The shortest text that parse_router reads as `router`, apart from what is a layer's default; ""
/// for nothing else.
/// MOE_ERR_ARGUMENT for an unknown name.
Status format_router(const moe_router& router, RouterText* out);

/// The router of a single layer, which has no capacity. Ranges are not checked.
/// MOE_ERR_ARGUMENT for an unknown name and for a number that routers of this kind do not have.
Status layer_router(const moe_router& router, RouterConfig* out);

/// Applies the selection, the capacity and the bounds that `router` names to `config`. Selection
/// uses the softmax over all experts; the weight rule is the config's own. What else
/// describe_router says of `config` may be said again: its own description changes nothing.
/// MOE_ERR_UNSUPPORTED for a config without a softmax over all experts, MOE_ERR_ARGUMENT for
/// anything that is a part of the model, MOE_ERR_RANGE for a number out of range; `out` is then
/// unchanged.
Status override_router(const RouterConfig& config, int32_t n_experts, const moe_router& router,
                       RouterConfig* out);

/// The reverse: what layer_router or override_router would make `config` of. Numbers that routers
/// of its kind do not have are 0.
moe_router describe_router(const RouterConfig& config, int32_t n_experts);

/// The names of the kinds; null behind the last.
const char* router_kind(size_t index);

}  // namespace moe
