// SPDX-License-Identifier: MIT
// Compares counters of the sessions before and after, layer by layer.
#include "cli/bench/used_experts.h"

#include <algorithm>
#include <string_view>

#include "cli/common.h"

namespace moe_cli {

UsedExperts::UsedExperts(const moe_model* model, bool keep_counting)
    : keep_counting_(keep_counting) {
  const moe_model_info info = model_info(model);
  moe_error error;
  expert_bytes_.resize(static_cast<size_t>(info.n_layers));
  n_moe_layers_ = static_cast<uint64_t>(info.n_moe_layers);
  for (size_t i = 0; i < moe_model_tensor_count(model); ++i) {
    moe_tensor_info t{};
    t.struct_size = sizeof t;
    check(moe_model_get_tensor_info(model, i, &t, &error), error);
    // A layer that guesses has experts too, which a step without a draft does not use.
    if (std::string_view(t.part) != "experts" || t.layer >= info.n_layers) continue;
    std::vector<uint64_t>& layer = expert_bytes_[static_cast<size_t>(t.layer)];
    const auto expert = static_cast<size_t>(t.expert);
    if (layer.size() <= expert) layer.resize(expert + 1);
    layer[expert] += t.bytes;
  }
  // The library counts the largest expert of a layer, times the maximum per token.
  other_bytes_ = info.bytes_per_token;
  for (size_t l = 0; l < expert_bytes_.size(); ++l) {
    if (expert_bytes_[l].empty()) continue;
    const moe_model_layer_info layer = layer_info(model, static_cast<int32_t>(l));
    const auto most = static_cast<uint64_t>(
        std::min(int64_t{layer.n_experts}, int64_t{layer.n_active} * layer.n_subheads));
    const uint64_t largest = *std::max_element(expert_bytes_[l].begin(), expert_bytes_[l].end());
    other_bytes_ -= std::min(other_bytes_, most * largest);
  }
}

void UsedExperts::begin(const std::vector<moe_session*>& sessions) {
  moe_error error;
  for (moe_session* s : sessions) check(moe_session_count_routing(s, true, &error), error);
}

void UsedExperts::end(const std::vector<moe_session*>& sessions) {
  moe_error error;
  for (size_t l = 0; l < expert_bytes_.size(); ++l) {
    if (!expert_bytes_[l].empty()) end_layer(sessions, l);
  }
  for (moe_session* s : sessions)
    check(moe_session_count_routing(s, keep_counting_, &error), error);
  ++n_steps_;
  n_tokens_ += sessions.size();
}

void UsedExperts::end_layer(const std::vector<moe_session*>& sessions, size_t layer) {
  const std::vector<uint64_t>& bytes = expert_bytes_[layer];
  used_.assign(bytes.size(), false);
  for (const moe_session* s : sessions) {
    moe_routing_stats stats{};
    stats.struct_size = sizeof stats;
    moe_error error;
    check(moe_session_get_routing(s, static_cast<int32_t>(layer), &stats, &error), error);
    for (size_t e = 0; e < bytes.size(); ++e) {
      if (stats.tokens_per_expert[e] == 0) continue;
      ++n_used_;
      if (!used_[e]) read_bytes_ += bytes[e];
      used_[e] = true;
    }
  }
}

double UsedExperts::experts_per_token() const {
  const uint64_t n = n_tokens_ * n_moe_layers_;
  return n == 0 ? 0 : static_cast<double>(n_used_) / static_cast<double>(n);
}

double UsedExperts::bytes_per_token() const {
  if (n_tokens_ == 0) return 0;
  return (static_cast<double>(read_bytes_) +
          static_cast<double>(n_steps_) * static_cast<double>(other_bytes_)) /
         static_cast<double>(n_tokens_);
}

}  // namespace moe_cli
