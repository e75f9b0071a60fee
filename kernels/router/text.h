#pragma once
// Routers as text: a layer's parameter, and a run-time override.

#include <string_view>

#include "kernels/router/router.h"
#include "src/base/status.h"

namespace moe {

/// A router of a layer on its own: a name of the list with its number, then options ("topk:2",
/// "threshold:0.9,max_k=4", "cosine:1,tau=0.07", "topk:2,renormalise", "sparsemixer"). Ranges are
/// not checked. MOE_ERR_ARGUMENT lists the accepted forms.
Status parse_router(std::string_view text, RouterConfig* out);

/// `config` as `text` changes it. Text: "threshold:T", "topk:K" or neither, then any of
/// "gamma=G", "min_capacity=C", "min_k=A", "max_k=B", "resident=P", separated by commas
/// ("threshold:0.9,max_k=8"; "gamma=1.25"). Selection is over the softmax of all experts; the
/// weight rule stays the router's own. MOE_ERR_UNSUPPORTED on a router without a softmax over all
/// experts, MOE_ERR_ARGUMENT for a text that cannot be read, MOE_ERR_RANGE for a number outside its
/// range; then `out` is untouched.
Status override_router(const RouterConfig& config, int32_t n_experts, std::string_view text,
                       RouterConfig* out);
/// How an override can begin: "topk:K, threshold:T".
const char* override_routers();

}  // namespace moe
