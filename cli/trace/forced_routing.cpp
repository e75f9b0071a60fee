// SPDX-License-Identifier: MIT
// Replaces each layer's choices by those of the trace; sessions take different places of it, and
// further experts of the model stand for its own.
#include "cli/trace/forced_routing.h"

#include <algorithm>

#include "cli/common.h"

namespace moe_cli {

ForcedRouting::ForcedRouting(Trace trace, const moe_model* model, bool overridden)
    : trace_(std::move(trace)) {
  for (auto& by_layer : steps_) by_layer.resize(static_cast<size_t>(trace_.n_layers));
  const std::vector<TraceUse>& uses = trace_.uses;
  for (size_t i = 0; i < uses.size(); ++i) {
    auto& steps = steps_[uses[i].decode ? 1 : 0][static_cast<size_t>(uses[i].layer)];
    if (uses[i].slot == 0) steps.push_back({i, 0});
    ++steps.back().n;
  }
  const moe_model_info info = model_info(model);
  if (info.n_moe_layers == 0)
    throw CallError(MOE_ERR_SHAPE, "--routing: every layer of this model is dense");
  for (int32_t l = 0; l < info.n_layers; ++l) {
    const moe_model_layer_info layer = layer_info(model, l);
    layers_.push_back({layer.n_experts, std::max(1, layer.n_subheads)});
    if (layer.n_experts > 0 && layer.n_active < trace_.n_used && !overridden) {
      throw CallError(MOE_ERR_SHAPE,
                      "--routing: the trace takes up to " + std::to_string(trace_.n_used) +
                          " experts per token, layer " + std::to_string(l) + " of this model " +
                          std::to_string(layer.n_active) + "; --router can raise that");
    }
    const auto of_trace = static_cast<size_t>(l % trace_.n_layers);
    if (layer.n_experts > 0 && steps_[0][of_trace].empty() && steps_[1][of_trace].empty()) {
      throw CallError(MOE_ERR_SHAPE, "--routing: the trace has no routing for its layer " +
                                         std::to_string(of_trace));
    }
  }
}

void ForcedRouting::apply_to(const std::vector<moe_session*>& sessions) {
  moe_error error;
  for (size_t i = 0; i < sessions.size(); ++i) sessions_.push_back({this, i});
  for (size_t i = 0; i < sessions.size(); ++i) {
    check(moe_session_watch_routing(sessions[i], call, &sessions_[i], &error), error);
  }
}

bool ForcedRouting::call(void* user, moe_routing_choices* choices) {
  const auto* session = static_cast<const Routed*>(user);
  session->by->route(choices, session->index);
  return true;
}

void ForcedRouting::route(moe_routing_choices* c, size_t session) const {
  const Layer& layer = layers_[static_cast<size_t>(c->layer)];
  const bool decode = c->n_tokens == layer.n_subheads;
  for (int32_t t = 0; t < c->n_tokens; ++t) {
    const Step& chosen = step(c->layer, c->position + t / layer.n_subheads, decode, session);
    int32_t* experts = c->experts + static_cast<ptrdiff_t>(t) * c->n_slots;
    float* weights = c->weights + static_cast<ptrdiff_t>(t) * c->n_slots;
    const auto n = std::min({static_cast<int32_t>(chosen.n), c->n_slots, layer.n_experts});
    for (int32_t j = 0; j < n; ++j) {
      const TraceUse& use = trace_.uses[chosen.first + static_cast<size_t>(j)];
      int32_t expert = map(use.expert, j, layer.n_experts);
      while (std::find(experts, experts + j, expert) != experts + j) {
        expert = (expert + 1) % layer.n_experts;
      }
      experts[j] = expert;
      weights[j] = use.weight;
    }
    c->counts[t] = n;
  }
}

const ForcedRouting::Step& ForcedRouting::step(int32_t layer, int32_t position, bool decode,
                                               size_t session) const {
  const auto of_trace = static_cast<size_t>(layer % trace_.n_layers);
  const std::vector<Step>* steps = &steps_[decode ? 1 : 0][of_trace];
  if (steps->empty()) steps = &steps_[decode ? 0 : 1][of_trace];
  const size_t later = decode ? session * steps->size() / sessions_.size() : 0;
  return (*steps)[(static_cast<size_t>(position) + later) % steps->size()];
}

int32_t ForcedRouting::map(int32_t expert, int32_t slot, int32_t n_experts) const {
  if (n_experts <= trace_.n_experts) return expert % n_experts;
  const int32_t copies = (n_experts + trace_.n_experts - 1) / trace_.n_experts;
  const int32_t other = expert + slot % copies * trace_.n_experts;
  return other < n_experts ? other : expert;
}

}  // namespace moe_cli
