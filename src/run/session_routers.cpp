// SPDX-License-Identifier: MIT
// The routers of a session: those of the file or a setting, and the switch between them.
#include "src/run/session_routers.h"

#include <algorithm>

#include "kernels/router/text.h"

namespace moe {

void SessionRouters::lay_out(Carver& c, const ModelConfig& config) {
  c.take(&routers_, config.n_layers());
  c.take(&prepared_routers_, config.n_layers());
  counters.lay_out(c, config);
}

void SessionRouters::init(const ModelConfig& config, uint64_t number) {
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
    routers_[static_cast<size_t>(l)] = ffn.moe.router;
    in_force_.has_capacity = in_force_.has_capacity || moe::has_capacity(ffn);
  }
  number_ = number;
}

Status SessionRouters::prepare(const ModelConfig& config, const Device& device,
                               const moe_router* router) {
  prepared_ = {.overridden = router != nullptr};
  bool any = false;
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
    RouterConfig& prepared = prepared_routers_[static_cast<size_t>(l)];
    prepared = ffn.moe.router;
    if (ffn.kind != FfnKind::kMoe) continue;
    any = true;
    if (router != nullptr) {
      MOE_TRY(override_router(ffn.moe.router, ffn.moe.n_experts, *router, &prepared)
                  .with_context("layer %d", l));
    }
    if (prepared.resident > 0 && !device.uses_host_memory()) {
      return Status::error(MOE_ERR_UNSUPPORTED,
                           "router override: 'resident' works only on the CPU");
    }
    prepared_.has_capacity = prepared_.has_capacity || prepared.gamma > 0;
  }
  if (any || router == nullptr) return {};
  return Status::error(MOE_ERR_UNSUPPORTED, "the model has no router: every layer is dense");
}

void SessionRouters::put_in_force(uint64_t number) {
  std::copy(prepared_routers_.begin(), prepared_routers_.end(), routers_.begin());
  in_force_ = prepared_;
  number_ = number;
}

void SessionRouters::copy_from(const SessionRouters& other) {
  std::copy(other.routers_.begin(), other.routers_.end(), routers_.begin());
  in_force_ = other.in_force_;
}

bool SessionRouters::depend_on_passes() const {
  for (const RouterConfig& router : routers_) {
    if (router.resident > 0) return true;
  }
  return has_capacity();
}

}  // namespace moe
