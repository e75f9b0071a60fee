// SPDX-License-Identifier: MIT
#include "tests/golden/routing.h"

#include <cstring>

#include "kernels/router/route.h"
#include "tests/support/check_shapes.h"

namespace moe::golden {

RouterConfig threshold_config(const Case& c) {
  RouterConfig config;
  config.kind = RouterKind::kThreshold;
  config.threshold = static_cast<float>(c.real("t", 0));
  config.gamma = static_cast<float>(std::max(0.0, c.real("gamma", 0)));
  config.min_capacity = c.integer("min_capacity", 0);
  return config;
}

void set_arrival_capacity(const Case& c, RouterConfig& config) {
  if (c.is_null("capacity")) return;
  config.gamma = 1e-30f;  // so small that min_capacity decides
  config.min_capacity = c.integer("capacity", 0);
  config.order = CapacityOrder::kArrival;
}

void set_cosine_router(const Case& c, const Tensor& proj, const Tensor& embedding, int32_t d,
                       TestLayer& layer, Outcome& outcome) {
  RouterConfig& r = layer.op.router;
  r.kind = RouterKind::kCosine;
  r.tau = static_cast<float>(c.real("tau", 1));
  const double tau_min = c.real("tau_min", 1e-4);
  if (tau_min < 1e-4) outcome.problem = "tau_min is below the library's 1e-4";
  if (tau_min > 1e-4 && r.tau > 0) r.tau = std::max(r.tau, static_cast<float>(tau_min));
  r.k = c.integer("k", 1);
  r.cosine_eps = static_cast<float>(c.real("eps", 1e-4));
  r.normalise_token = c.flag("normalize_token", true);
  if (!c.is_null("normalize_topk")) r.topk_norm = c.flag("normalize_topk", false) ? 1 : 0;
  const std::string gating = c.text("gating", "softmax");
  if (gating == "sigmoid") r.gate = CosineGate::kSigmoid;
  if (gating != "sigmoid" && gating != "softmax") {
    outcome.status = Status::error(MOE_ERR_RANGE, "no gating %s", gating.c_str());
  }
  layer.op.d_model = d;
  layer.op.n_experts = embedding.rows();
  RouterWeightsView& w = layer.op.router_weights;
  w.proj = layer.keep({FormatId::kF32, proj.floats(), proj.rows(), proj.cols()});
  w.embedding =
      layer.keep({FormatId::kF32, embedding.floats(), embedding.rows(), embedding.cols()});
}

void add_silent_experts(TestLayer& layer) {
  const auto d = static_cast<size_t>(layer.op.d_model / layer.op.n_subheads);
  Ffn ffn;
  ffn.up = layer.keep({FormatId::kF32, std::vector<float>(d), 1, static_cast<int32_t>(d)});
  ffn.down = layer.keep({FormatId::kF32, std::vector<float>(d), static_cast<int32_t>(d), 1});
  layer.experts.assign(static_cast<size_t>(layer.op.n_experts), {ffn});
}

LayerRun run_on_all(const TestLayer& layer, const Tensor& x, Devices& devices, Outcome& outcome) {
  FfnOp op = layer.op;
  op.n_rows = x.rows();
  outcome.status = check_ffn(op);
  for (const auto& stack : layer.experts) {
    for (const Ffn& ffn : stack) {
      if (outcome.status.ok()) {
        outcome.status = check_ffn(ffn, op.d_model / std::max(1, op.n_subheads), "expert");
      }
    }
  }
  LayerRun last;
  if (!outcome.status.ok()) return last;
  (void)same_on_all(devices.all(), outcome, [&](Device& device) {
    last = run_layer(device, layer, x.floats(), x.rows());
    if (!last.status.ok()) outcome.status = last.status;
    std::vector<float> all = last.y;
    all.insert(all.end(), last.weight.begin(), last.weight.end());
    all.insert(all.end(), last.scores.begin(), last.scores.end());
    return last.status.ok() ? all : std::vector<float>{0};
  });
  return last;
}

void set_by_expert(int32_t n_tokens, int32_t n_experts, int32_t max_k, const RouterConfig& config,
                   const std::vector<int32_t>& expert, const std::vector<float>& weight,
                   const std::vector<uint8_t>& kept, const std::vector<int32_t>& count,
                   Outcome& outcome) {
  const auto size = static_cast<size_t>(n_tokens) * static_cast<size_t>(n_experts);
  std::vector<uint8_t> kept_by(size);
  std::vector<float> weight_by(size);
  std::vector<std::pair<int32_t, int32_t>> dropped;
  for (int32_t t = 0; t < n_tokens; ++t) {
    for (int32_t j = 0; j < max_k; ++j) {
      const auto slot = static_cast<size_t>(t * max_k + j);
      const auto at = static_cast<size_t>(t * n_experts + expert[slot]);
      kept_by[at] = kept[slot];
      weight_by[at] = weight[slot];
      if (j < count[static_cast<size_t>(t)] && kept[slot] == 0) {
        dropped.emplace_back(t, expert[slot]);
      }
    }
  }
  std::sort(dropped.begin(), dropped.end());
  Json list = Json::array();
  for (const auto& [t, e] : dropped) list.push_back({t, e});
  const int32_t capacity = capacity_of(n_tokens, n_experts, config.gamma, config.min_capacity);
  outcome.out["counts"] = to_json(count, {n_tokens});
  outcome.out["capacity"] = capacity < 0 ? Json() : Json(capacity);
  outcome.out["kept"] = to_json(kept_by, {n_tokens, n_experts});
  outcome.out["weights"] = to_json(weight_by, {n_tokens, n_experts});
  outcome.out["dropped"] = list;
}

}  // namespace moe::golden
