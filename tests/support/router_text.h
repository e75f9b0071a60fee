// SPDX-License-Identifier: MIT
#pragma once
// The functions of kernels/router/text.h for tests that write routers as text.

#include "kernels/router/text.h"

namespace moe {

/// The router of a layer.
inline Status parse_router(std::string_view text, RouterConfig* out) {
  moe_router router{};
  MOE_TRY(parse_router(text, &router));
  return layer_router(router, out);
}

inline Status override_router(const RouterConfig& config, int32_t n_experts, std::string_view text,
                              RouterConfig* out) {
  moe_router router{};
  MOE_TRY(parse_router(text, &router));
  return override_router(config, n_experts, router, out);
}

/// Session::set_router; empty: as in the file.
template <class Session>
Status set_router(Session& session, std::string_view text) {
  if (text.empty()) return session.set_router(nullptr);
  moe_router router{};
  MOE_TRY(parse_router(text, &router));
  return session.set_router(&router);
}

}  // namespace moe
