// SPDX-License-Identifier: MIT
// Adds up the routing counts of sessions.
#include "src/serve/expert_counts.h"

#include <algorithm>
#include <string_view>

#include "src/serve/handles.h"

namespace moe_serve {

ExpertCounts::ExpertCounts(const moe_model* model, const std::vector<moe_session*>& sessions) {
  auto info = MOE_INIT(moe_model_info);
  moe_error error;
  check(moe_model_get_info(model, &info, &error), error);
  if (std::string_view(info.device) != "cpu") return;
  for (moe_session* session : sessions) {
    check(moe_session_count_routing(session, true, &error), error);
  }
  for (int32_t layer = 0; layer < info.n_layers; ++layer) {
    auto stats = MOE_INIT(moe_routing_stats);
    for (moe_session* session : sessions) {
      if (moe_session_get_routing(session, layer, &stats, &error) != MOE_OK) break;  // dense
      if (layers_.empty() || layers_.back().layer != layer) layers_.push_back({layer, {}});
      layers_.back().uses.resize(static_cast<size_t>(stats.n_experts));
      sources_.push_back({layers_.size() - 1, stats.tokens_per_expert});
    }
  }
}

void ExpertCounts::refresh(bool idle) {
  constexpr auto kOften = std::chrono::milliseconds(200);
  const auto now = std::chrono::steady_clock::now();
  if (sources_.empty() || (!idle && now - last_ < kOften)) return;
  last_ = now;
  const std::lock_guard lock(mutex_);
  for (Layer& layer : layers_) std::fill(layer.uses.begin(), layer.uses.end(), 0);
  for (const Source& source : sources_) {
    std::vector<uint64_t>& uses = layers_[source.layer].uses;
    for (size_t i = 0; i < uses.size(); ++i) uses[i] += source.uses[i];
  }
}

std::vector<ExpertCounts::Layer> ExpertCounts::read() {
  const std::lock_guard lock(mutex_);
  return layers_;
}

}  // namespace moe_serve
