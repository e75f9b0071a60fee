// SPDX-License-Identifier: MIT
// Watches the routing of sessions, and counts the choices that two of them share.
#include "cli/compare/chosen_experts.h"

#include <algorithm>
#include <iterator>

namespace moe_cli {

ChosenExperts::ChosenExperts(const moe_model* model, moe_session* session) : session_(session) {
  const moe_model_info info = model_info(model);
  for (int32_t l = 0; l < info.n_layers; ++l) n_experts_.push_back(layer_info(model, l).n_experts);
  layers_.resize(n_experts_.size());
  if (info.n_moe_layers == 0) return;
  moe_error error;
  const moe_status status = moe_session_watch_routing(session_, take, this, &error);
  if (status == MOE_ERR_UNSUPPORTED) return;
  check(status, error);
  recording_ = true;
}

ChosenExperts::~ChosenExperts() {
  if (recording_) moe_session_watch_routing(session_, nullptr, nullptr, nullptr);
}

void ChosenExperts::rethrow() const {
  if (thrown_) std::rethrow_exception(thrown_);
}

void ChosenExperts::clear() {
  for (std::vector<Experts>& layer : layers_) layer.clear();
}

bool ChosenExperts::take(void* user, moe_routing_choices* choices) {
  auto* chosen = static_cast<ChosenExperts*>(user);
  try {
    chosen->add(*choices);
  } catch (...) {  // nothing may be thrown through the library
    chosen->thrown_ = std::current_exception();
    return false;
  }
  return true;
}

void ChosenExperts::add(const moe_routing_choices& c) {
  std::vector<Experts>& layer = layers_[static_cast<size_t>(c.layer)];
  for (int32_t t = 0; t < c.n_tokens; ++t) {
    const int32_t* first = c.experts + ptrdiff_t{t} * c.n_slots;
    Experts experts(first, first + c.counts[t]);
    std::sort(experts.begin(), experts.end());
    layer.push_back(std::move(experts));
  }
}

SharedChoices::SharedChoices(const ChosenExperts& reference, const ChosenExperts& model) {
  if (!reference.recording() || !model.recording()) return;
  if (reference.n_experts() != model.n_experts()) return;
  for (size_t l = 0; l < model.n_experts().size(); ++l) {
    if (model.n_experts()[l] > 0) sums_.push_back({static_cast<int32_t>(l), 0, 0, 0});
  }
}

void SharedChoices::add(ChosenExperts& reference, ChosenExperts& model) {
  std::vector<int32_t> both;
  for (Layer& sum : sums_) {
    const auto& a = reference.of_layer(static_cast<size_t>(sum.layer));
    const auto& b = model.of_layer(static_cast<size_t>(sum.layer));
    for (size_t t = 0; t < std::min(a.size(), b.size()); ++t) {
      both.clear();
      std::set_intersection(a[t].begin(), a[t].end(), b[t].begin(), b[t].end(),
                            std::back_inserter(both));
      ++sum.n;
      sum.shared += static_cast<double>(both.size()) /
                    static_cast<double>(std::max(a[t].size(), b[t].size()));
      sum.all_same += a[t] == b[t] ? 1 : 0;
    }
  }
  reference.clear();
  model.clear();
}

std::vector<SharedChoices::Layer> SharedChoices::layers() const {
  std::vector<Layer> layers = sums_;
  for (Layer& layer : layers) {
    const auto n = static_cast<double>(std::max<uint64_t>(layer.n, 1));
    layer.shared /= n;
    layer.all_same /= n;
  }
  return layers;
}

}  // namespace moe_cli
