// SPDX-License-Identifier: MIT
#pragma once
// A session's routers: those in force, and who watches what they choose.

#include "src/run/routing_counters.h"

struct moe_router;

namespace moe {

/// True if the FFN's router in the file has a capacity.
inline bool has_capacity(const FfnConfig& ffn) {
  return ffn.kind == FfnKind::kMoe && ffn.moe.router.gamma > 0;
}

class SessionRouters {
 public:
  void lay_out(Carver& c, const ModelConfig& config);
  /// Puts the routers of the file in force. `number` as for put_in_force().
  void init(const ModelConfig& config, uint64_t number);

  /// Checks `router` (null: as in the file) for every layer and keeps the result for
  /// put_in_force(), until which nothing else changes.
  Status prepare(const ModelConfig& config, const Device& device, const moe_router* router);
  bool prepared_capacity() const { return prepared_.has_capacity; }
  /// `number` must be unique within the model.
  void put_in_force(uint64_t number);
  void copy_from(const SessionRouters& other);

  const RouterConfig& of(int32_t layer) const { return routers_[static_cast<size_t>(layer)]; }
  /// Some router has a capacity, so a call is one chunk.
  bool has_capacity() const { return in_force_.has_capacity; }
  /// Results depend on how a text is split into passes.
  bool depend_on_passes() const;
  /// Not those of the file.
  bool overridden() const { return in_force_.overridden; }
  /// Differs between sessions, and between settings of one session.
  uint64_t number() const { return number_; }

  RoutingCounters counters;
  RoutingHook hook;

 private:
  struct Setting {
    bool overridden = false;
    bool has_capacity = false;
  };

  std::span<RouterConfig> routers_;           // (n_layers) in force; dense layers: unused
  std::span<RouterConfig> prepared_routers_;  // (n_layers)
  Setting in_force_;
  Setting prepared_;
  uint64_t number_ = 0;
};

}  // namespace moe
