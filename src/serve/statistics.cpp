// SPDX-License-Identifier: MIT
// Writes the counts of a service.
#include "src/serve/statistics.h"

namespace moe_serve {

void add_counts(const moe_service_stats& vectors, moe_service_stats& stats) {
  stats.n_running += vectors.n_running;
  stats.n_waiting += vectors.n_waiting;
  stats.n_requests += vectors.n_requests;
  stats.n_answered += vectors.n_answered;
  stats.n_cancelled += vectors.n_cancelled;
  stats.n_failed += vectors.n_failed;
  stats.prompt_tokens += vectors.prompt_tokens;
}

Json statistics_json(const Host& host, const moe_service_stats& s,
                     const std::vector<ExpertCounts::Layer>& layers) {
  Json json = {{"model", host.name},
               {"system_fingerprint", host.fingerprint.text},
               {"settings", host.fingerprint.settings},
               {"slots", s.n_slots},
               {"context", s.context},
               {"running", s.n_running},
               {"waiting", s.n_waiting},
               {"kv_positions", s.kv_positions},
               {"prompt_tokens", s.prompt_tokens},
               {"reused_tokens", s.reused_tokens},
               {"generated_tokens", s.generated_tokens},
               {"steps", s.n_steps},
               {"step_seconds", s.step_seconds},
               {"memory",
                {{"weight_bytes", host.weight_bytes},
                 {"cap_bytes", s.cap_bytes},
                 {"counted_bytes", s.counted_bytes},
                 {"peak_bytes", s.peak_bytes},
                 {"expert_uses", s.expert_uses},
                 {"expert_hits", s.expert_hits},
                 {"expert_read_bytes", s.expert_read_bytes}}},
               {"layers", Json::array()}};
  for (const ExpertCounts::Layer& layer : layers) {
    json["layers"].push_back({{"layer", layer.layer}, {"tokens_per_expert", layer.uses}});
  }
  return json;
}

}  // namespace moe_serve
