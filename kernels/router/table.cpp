// SPDX-License-Identifier: MIT
// Finds routers by name and checks a configuration's parameters against those that its router has.
#include "kernels/router/table.h"

namespace moe {
namespace {

Status check_count(const char* field, int32_t v, int32_t low, int32_t high) {
  if (v >= low && v <= high) return {};
  return Status::error(MOE_ERR_RANGE, "router: %s: expected %d..%d, found %d", field, low, high, v);
}

bool counts(const RouterField& field, const RouterInfo& info, bool by_threshold) {
  if (field.param == kParamThreshold) return by_threshold;
  if (field.param == kParamK && by_threshold) return false;
  return field.param == 0 || (info.params & field.param) != 0;
}

Status check_field(const RouterField& field, const RouterConfig& c, int32_t n_experts) {
  if (field.count != nullptr) {
    const bool bound = field.count == &RouterConfig::max_k && c.max_k != 0;
    const int32_t low = bound ? c.min_k : static_cast<int32_t>(field.low);
    return check_count(field.name, c.*field.count, low, field.high > 0 ? INT32_MAX : n_experts);
  }
  const float v = c.*field.number;
  if (v >= field.low && v <= field.high) return {};
  return Status::error(MOE_ERR_RANGE, "router: %s: expected %s, found %g", field.name,
                       field.expected, static_cast<double>(v));
}

constexpr int32_t kMaxGroups = 1024;  // compared pairwise

Status check_groups(const RouterConfig& c, int32_t n_experts) {
  MOE_TRY(check_count("n_groups", c.n_groups, 1, kMaxGroups));
  if (n_experts % c.n_groups != 0) {
    return Status::error(MOE_ERR_SHAPE, "router: n_groups: %d does not divide n_experts %d",
                         c.n_groups, n_experts);
  }
  MOE_TRY(check_count("top_groups", c.top_groups, 1, c.n_groups));
  return check_count("k", c.k, 1, n_experts / c.n_groups * c.top_groups);
}

}  // namespace

const RouterInfo* find_router(std::string_view name) {
  for (const RouterInfo& info : kRouters) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

bool selects_by_threshold(const RouterConfig& c) {
  return c.by_threshold || router_info(c).has(kParamThreshold);
}

int32_t router_max_k(const RouterConfig& c, int32_t n_experts) {
  const int32_t takes = router_info(c).takes;
  if (takes > 0) return takes;
  return selects_by_threshold(c) ? threshold_most(c, n_experts) : c.k;
}

bool has_softmax(const RouterConfig& c) {
  const RouterOverride selection = router_info(c).selection;
  return selection == RouterOverride::kSelects ||
         (selection == RouterOverride::kByGate && c.gate == CosineGate::kSoftmax);
}

Status validate_router(const RouterConfig& c, int32_t n_experts) {
  const RouterInfo& info = router_info(c);
  MOE_TRY(check_count("n_experts", n_experts, info.min_experts, INT32_MAX));
  if (c.by_threshold && (info.selection != RouterOverride::kByGate || !has_softmax(c))) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "router: by_threshold: a %s router with this gate has no threshold",
                         info.name);
  }
  const bool by_threshold = selects_by_threshold(c);
  for (const RouterField& field : kRouterFields) {
    if (counts(field, info, by_threshold)) MOE_TRY(check_field(field, c, n_experts));
  }
  if (info.has(kParamGroups)) MOE_TRY(check_groups(c, n_experts));
  if (info.has(kParamWeights) && !info.has(kParamChosen) &&
      c.weights > RouterWeights::kRenormalised) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "router: weights: a %s router has raw or renormalised weights", info.name);
  }
  if (info.has(kParamTopkNorm)) MOE_TRY(check_count("topk_norm", c.topk_norm, -1, 1));
  return {};
}

}  // namespace moe
