#pragma once
// Every router, one line each. A new one is a file beside this and a line here.

#include <string_view>

#include "kernels/router/base.h"
#include "kernels/router/cosine.h"
#include "kernels/router/hash.h"
#include "kernels/router/sigmoid.h"
#include "kernels/router/softmax.h"
#include "kernels/router/sparsemixer.h"
#include "kernels/router/threshold.h"

namespace moe {

/// `route` chooses for one token and returns how many experts it asks for.
struct RouterInfo {
  RouterKind kind;
  const char* name;  // in files, configurations and on the command line
  bool uses_k;       // RouterConfig::k says how many are taken
  int32_t (*route)(const RouterConfig&, const RouterInput&, const RouterScratch&,
                   const RouterChoice&);
};

inline constexpr RouterInfo kRouters[] = {
    {RouterKind::kSoftmax, "softmax", true, route_softmax<OneThread>},
    {RouterKind::kThreshold, "threshold", false, route_threshold<OneThread>},
    {RouterKind::kCosine, "cosine", true, route_cosine<OneThread>},
    {RouterKind::kSigmoid, "sigmoid", true, route_sigmoid<OneThread>},
    {RouterKind::kSparsemixer, "sparsemixer", false, route_sparsemixer<OneThread>},
    {RouterKind::kHash, "hash", false, route_hash<OneThread>},
    {RouterKind::kBase, "base", false, route_base<OneThread>},
};

inline const RouterInfo* find_router(std::string_view name) {
  for (const RouterInfo& info : kRouters) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

inline const RouterInfo& router_info(RouterKind kind) {
  for (const RouterInfo& info : kRouters) {
    if (info.kind == kind) return info;
  }
  return kRouters[0];  // not reached: every kind has its line
}

}  // namespace moe
