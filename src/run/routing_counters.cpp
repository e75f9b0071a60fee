// SPDX-License-Identifier: MIT
// Places the counters of all layers in one array; a pass counts beside it and is added when it
// succeeds.
#include "src/run/routing_counters.h"

namespace moe {
namespace {

// One count per expert, and one per number of experts of a (sub-)token, including 0.
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

void RoutingCounters::lay_out(Carver& c, const ModelConfig& config) {
  c.take(&layers_, 2 * int64_t{config.n_layers()});
  c.take(&counts_, 2 * static_cast<int64_t>(n_counts(config)));
  uint64_t* next = counts_.data();
  for (size_t l = 0; l < layers_.size(); ++l) {  // empty while only measuring
    const LayerConfig& layer = config.layers[l % config.layers.size()];
    if (n_counts(layer) == 0) continue;
    layers_[l].tokens_per_expert = next;
    layers_[l].experts_per_token = next + layer.ffn.moe.n_experts;
    next += n_counts(layer);
  }
}

void RoutingCounters::turn(bool on) {
  if (on) clear_from(0, 0);
  on_ = on;
}

void RoutingCounters::clear_from(size_t count, size_t layer) {
  for (; count < counts_.size(); ++count) counts_[count] = 0;
  for (; layer < layers_.size(); ++layer) {
    RoutingStats& s = layers_[layer];
    s.n_tokens = s.n_dropped = s.n_positive = s.n_activations = s.n_skipped = 0;
    s.skipped_probability = 0;
  }
}

void RoutingCounters::begin_pass() {
  if (on_) clear_from(counts_.size() / 2, layers_.size() / 2);
}

void RoutingCounters::add_pass() {
  if (!on_) return;
  const size_t n_counts = counts_.size() / 2;
  const size_t n_layers = layers_.size() / 2;
  for (size_t i = 0; i < n_counts; ++i) counts_[i] += counts_[n_counts + i];
  for (size_t i = 0; i < n_layers; ++i) {
    const RoutingStats& of_pass = layers_[n_layers + i];
    layers_[i].n_tokens += of_pass.n_tokens;
    layers_[i].n_dropped += of_pass.n_dropped;
    layers_[i].n_positive += of_pass.n_positive;
    layers_[i].n_activations += of_pass.n_activations;
    layers_[i].n_skipped += of_pass.n_skipped;
    layers_[i].skipped_probability += of_pass.skipped_probability;
  }
}

}  // namespace moe
