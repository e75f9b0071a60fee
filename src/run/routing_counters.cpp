#include "src/run/routing_counters.h"

namespace moe {
namespace {

// One count for each expert, and one for each number of experts per (sub-)token, 0 included.
size_t n_counts(const LayerConfig& layer) {
  if (layer.ffn.kind != FfnKind::kMoe) return 0;
  return 2 * static_cast<size_t>(layer.ffn.moe.n_experts) + 1;
}

size_t n_counts(const ModelConfig& config) {
  size_t n = 0;
  for (const LayerConfig& layer : config.layers) n += n_counts(layer);
  return n;
}

}  // namespace

uint64_t RoutingCounters::bytes(const ModelConfig& config) {
  return n_counts(config) * sizeof(uint64_t) + config.layers.size() * sizeof(RoutingStats);
}

Status RoutingCounters::init(const ModelConfig& config) {
  MOE_TRY(layers_.resize(config.layers.size()));
  MOE_TRY(counts_.resize(n_counts(config)));
  uint64_t* next = counts_.data();
  for (size_t l = 0; l < layers_.size(); ++l) {
    const size_t n = n_counts(config.layers[l]);
    if (n == 0) continue;
    layers_[l].tokens_per_expert = next;
    layers_[l].experts_per_token = next + config.layers[l].ffn.moe.n_experts;
    next += n;
  }
  return {};
}

void RoutingCounters::clear() {
  for (uint64_t& c : counts_) c = 0;
  for (RoutingStats& s : layers_) {
    s.n_tokens = s.n_dropped = s.n_positive = s.n_activations = 0;
  }
}

}  // namespace moe
