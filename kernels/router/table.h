// SPDX-License-Identifier: MIT
#pragma once
// The routers of list.h as a table.

#include <string_view>

#include "kernels/router/all.h"
#include "src/base/status.h"

namespace moe {
namespace router_detail {

template <class Router>
constexpr RouterInfo row(RouterKind kind) {
  RouterInfo info = Router::info;
  info.kind = kind;
  info.route = Router::template route<OneThread>;
  return info;
}

}  // namespace router_detail

/// In the order of RouterKind.
inline constexpr RouterInfo kRouters[] = {
#define MOE_ROUTER(Name, header) router_detail::row<Name##Router>(RouterKind::k##Name),
#include "kernels/router/list.h"
#undef MOE_ROUTER
};

inline const RouterInfo& router_info(RouterKind kind) {
  return kRouters[static_cast<size_t>(kind)];
}
inline const RouterInfo& router_info(const RouterConfig& config) {
  return router_info(config.kind);
}
/// Null if no router has that name.
const RouterInfo* find_router(std::string_view name);

/// True if experts are selected until their probabilities reach the threshold.
bool selects_by_threshold(const RouterConfig& config);
/// Maximum number of experts per token.
int32_t router_max_k(const RouterConfig& config, int32_t n_experts);
/// True if the router computes a softmax over all experts, so that its selection can be overridden.
bool has_softmax(const RouterConfig& config);

/// Checks every range of a router's parameters for n_experts experts: MOE_ERR_RANGE, naming the
/// field ("router: k: expected 1..8, found 9").
Status validate_router(const RouterConfig& config, int32_t n_experts);

}  // namespace moe
