#pragma once
// Checks of router parameters, and the text form of a run-time override.

#include <string_view>

#include "kernels/router/router.h"
#include "src/base/status.h"

namespace moe {

/// Every range of a router's parameters for n_experts experts: MOE_ERR_RANGE with a text that names
/// the field ("router: k: expected 1..8, found 9").
Status validate_router(const RouterConfig& config, int32_t n_experts);

/// True where the router computes a softmax over all experts, so that its selection can be changed.
bool has_softmax(const RouterConfig& config);

/// `config` as `text` changes it. Text: "threshold:T", "topk:K" or neither, then any of
/// "gamma=G", "min_capacity=C", "min_k=A", "max_k=B", separated by commas ("threshold:0.9,max_k=8";
/// "gamma=1.25"). Selection is over the softmax of all experts; the weight rule stays the router's
/// own. MOE_ERR_UNSUPPORTED on a router without a softmax over all experts, MOE_ERR_ARGUMENT for a
/// text that cannot be read, MOE_ERR_RANGE for a number outside its range; then `out` is untouched.
Status override_router(const RouterConfig& config, int32_t n_experts, std::string_view text,
                       RouterConfig* out);

}  // namespace moe
