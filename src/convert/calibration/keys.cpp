// SPDX-License-Identifier: MIT
// Maps matrices to the inputs that they read, and lists the inputs of a conversion in order.
#include "src/convert/calibration/keys.h"

#include <string_view>

namespace moe {

std::string key_of(const std::string& name, const LayerConfig* layer) {
  const auto with_end = [&](std::string_view end, const char* other) {
    return name.substr(0, name.size() - end.size()).append(other);
  };
  constexpr std::string_view kGate = ".gate", kQueries = ".attention.q", kKeys = ".attention.k";
  if (name.ends_with(kGate) && (layer == nullptr || !layer->ffn.in_norms)) {
    return with_end(kGate, ".up");
  }
  if (layer == nullptr || layer->attention.in_norms) return name;
  const AttentionConfig* const attention = &layer->attention;
  const bool alone = attention->latent > 0 || attention->shares_kv();
  const char* const last = attention->v_from_k ? ".attention.k" : ".attention.v";
  if (name.ends_with(kQueries) && !alone) return with_end(kQueries, last);
  return name.ends_with(kKeys) ? with_end(kKeys, last) : name;
}

const LayerConfig* layer_of(const PlannedSegment& segment, const ModelConfig& config) {
  if (segment.layer < 0) return nullptr;
  return &config.layers[static_cast<size_t>(segment.layer)];
}

std::vector<InputKey> list_inputs(const Plan& plan, const ModelConfig& config) {
  std::vector<InputKey> out;
  for (const PlannedSegment& segment : plan.segments) {
    each_product(segment, config, [&](const Slot& slot, const std::string& key) {
      if (slot.short_name() == key) out.push_back({key, slot.cols});
    });
  }
  return out;
}

std::set<std::string> keys_of(const std::set<std::string>& names, const Plan& plan,
                              const ModelConfig& config) {
  std::set<std::string> keys;
  for (const PlannedSegment& segment : plan.segments) {
    if (segment.part == Part::kEmbedding && !config.embedding_is_head()) continue;
    each_product(segment, config, [&](const Slot& slot, const std::string& key) {
      if (names.contains(slot.short_name())) keys.insert(key);
    });
  }
  return keys;
}

std::string average_of(const PlannedSegment& segment, const Slot& slot) {
  if (segment.part != Part::kExperts) return {};
  return std::to_string(segment.layer) + "." + std::to_string(slot.sublayer) + "." +
         std::to_string(static_cast<int>(slot.role));
}

size_t begin_of_layer(const Plan& plan, size_t segment) {
  const std::vector<PlannedSegment>& all = plan.segments;
  size_t begin = segment;
  while (begin > 0 && all[begin - 1].layer == all[segment].layer) --begin;
  return begin;
}

size_t end_of_layer(const Plan& plan, size_t segment) {
  const std::vector<PlannedSegment>& all = plan.segments;
  size_t end = segment;
  while (end < all.size() && all[end].layer == all[segment].layer) ++end;
  return end;
}

}  // namespace moe
