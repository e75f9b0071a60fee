// SPDX-License-Identifier: MIT
// Routers and capacity. Cosine routers run in Device::ffn, which computes their scores.

#include <cstring>

#include "kernels/router/table.h"
#include "tests/golden/golden.h"
#include "tests/golden/routing.h"
#include "tests/kernels/route_helper.h"

namespace moe::golden {
namespace {

Status check_logits(const Tensor& logits) {
  if (logits.shape.size() == 2 && logits.cols() >= 1) return {};
  return Status::error(MOE_ERR_SHAPE, "logits must be (T, N)");
}

Json slots_to_json(const std::vector<int32_t>& v, const Routed& r) {
  return to_json(v, {r.n_tokens, r.max_k});
}

void set_probs(const Tensor& logits, Outcome& outcome) {
  std::vector<float> p = logits.floats();
  for (int32_t t = 0; t < logits.rows(); ++t) {
    float* row = &p[static_cast<size_t>(t * logits.cols())];
    const std::vector<float> z(row, row + logits.cols());
    softmax_all(z.data(), logits.cols(), row);
  }
  outcome.out["probs"] = to_json(p, logits.shape);
}

void run_topk(const Case& c, Devices&, Outcome& outcome) {
  const Tensor logits = c.in_tensor("logits");
  outcome.status = check_logits(logits);
  if (!outcome.status.ok()) return;
  RouterConfig config;
  config.k = c.integer("k", 1);
  config.scale = static_cast<float>(c.real("scale", 1));
  if (c.flag("normalize", false)) config.weights = RouterWeights::kRenormalised;
  const std::string order = c.text("order", "softmax_topk");
  if (order == "topk_softmax") config.weights = RouterWeights::kChosen;
  if (order != "topk_softmax" && order != "softmax_topk") {
    outcome.status = Status::error(MOE_ERR_RANGE, "no order %s", order.c_str());
    return;
  }
  const Routed r = route_all(config, logits.floats(), logits.rows(), logits.cols());
  outcome.status = r.status;
  if (!r.status.ok()) return;
  outcome.out["indices"] = slots_to_json(r.expert, r);
  outcome.out["weights"] = to_json(r.weight, {r.n_tokens, r.max_k});
  set_probs(logits, outcome);
}

void run_sparsemixer(const Case& c, Devices&, Outcome& outcome) {
  const Tensor logits = c.in_tensor("logits");
  outcome.status = check_logits(logits);
  if (!outcome.status.ok()) return;
  RouterConfig config;
  config.kind = RouterKind::kSparsemixer;
  config.jitter = static_cast<float>(c.real("jitter", 0.01));
  const Routed r = route_all(config, logits.floats(), logits.rows(), logits.cols());
  outcome.status = r.status;
  outcome.out["indices"] = slots_to_json(r.expert, r);
  outcome.out["weights"] = to_json(r.weight, {r.n_tokens, r.max_k});
}

void run_threshold(const Case& c, Devices&, Outcome& outcome) {
  const Tensor logits = c.in_tensor("logits");
  outcome.status = check_logits(logits);
  if (!outcome.status.ok()) return;
  const RouterConfig config = threshold_config(c);
  const Routed r = route_all(config, logits.floats(), logits.rows(), logits.cols());
  outcome.status = r.status;
  if (!r.status.ok()) return;
  outcome.out["order"] = slots_to_json(r.expert, r);
  set_probs(logits, outcome);
  set_by_expert(r.n_tokens, logits.cols(), r.max_k, config, r.expert, r.weight, r.kept, r.count,
                outcome);
}

Json capacity_json(int32_t capacity) { return capacity < 0 ? Json() : Json(capacity); }

void run_capacity(const Case& c, Devices&, Outcome& outcome) {
  const double gamma = c.real("gamma", 0);
  outcome.out["capacity"] =
      capacity_json(capacity_of(c.integer("tokens", 0), c.integer("experts", 1),
                                static_cast<float>(gamma), c.integer("min_capacity", 0)));
}

void run_arrival(const Case& c, Devices&, Outcome& outcome) {
  const Tensor t = c.in_tensor("indices");
  RouterConfig config;
  set_arrival_capacity(c, config);
  std::vector<int32_t> expert(t.data.begin(), t.data.end());
  std::vector<float> weight(expert.size(), 1);
  std::vector<uint8_t> kept(expert.size(), 1);
  std::vector<int32_t> count(static_cast<size_t>(t.rows()), t.cols());
  Routing out{t.rows(), t.cols(), expert.data(), weight.data(), kept.data(), count.data(), nullptr};
  RouteOp op;
  op.config = &config;
  op.n_experts = c.integer("experts", 1);
  op.out = &out;
  op.prob = weight.data();
  std::vector<int32_t> order(count.size());
  std::vector<int32_t> used(static_cast<size_t>(op.n_experts));
  apply_capacity(op, 0, t.rows(), order.data(), used.data());
  outcome.out["kept"] = to_json(kept, t.shape);
}

void run_cosine(const Case& c, Devices& devices, Outcome& outcome) {
  TestLayer layer;
  const Tensor hidden = c.in_tensor("hidden");
  set_cosine_router(c, c.in_tensor("proj"), c.in_tensor("experts"), hidden.cols(), layer, outcome);
  if (!outcome.status.ok()) return;
  add_silent_experts(layer);
  const LayerRun run = run_on_all(layer, hidden, devices, outcome);
  if (!outcome.status.ok()) return;
  outcome.out["scores"] = to_json(run.scores, {hidden.rows(), layer.op.n_experts});
  outcome.out["indices"] = to_json(run.expert, {hidden.rows(), run.max_k});
  outcome.out["weights"] = to_json(run.weight, {hidden.rows(), run.max_k});
}

}  // namespace

void add_routers(Runners& runners) {
  runners["topk_softmax_route"] = run_topk;
  runners["sparsemixer_route"] = run_sparsemixer;
  runners["threshold_route"] = run_threshold;
  runners["capacity_of"] = run_capacity;
  runners["arrival_capacity"] = run_arrival;
  runners["cosine_route"] = run_cosine;
}

}  // namespace moe::golden
