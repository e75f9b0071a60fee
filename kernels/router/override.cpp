#include "kernels/router/override.h"

#include "kernels/router/list.h"
#include "src/base/number.h"
#include "src/base/string.h"

namespace moe {
namespace {

bool finite(float v) { return (ScalarLanes::bits(v) & 0x7f800000) != 0x7f800000; }

Status range_error(const char* field, const char* expected, double found) {
  return Status::error(MOE_ERR_RANGE, "router: %s: expected %s, found %g", field, expected, found);
}

Status check_int(const char* field, int32_t v, int32_t low, int32_t high) {
  if (v >= low && v <= high) return {};
  return Status::error(MOE_ERR_RANGE, "router: %s: expected %d..%d, found %d", field, low, high, v);
}

Status bad_text(std::string_view part) {
  return Status::error(MOE_ERR_ARGUMENT,
                       "router override: cannot read '%.*s'; expected threshold:T or topk:K, then "
                       "gamma=G, min_capacity=C, min_k=A, max_k=B",
                       static_cast<int>(std::min<size_t>(part.size(), 80)), part.data());
}

Status parse_float(std::string_view part, std::string_view text, float* out) {
  double v = 0;
  if (!parse_number(text, &v)) return bad_text(part);
  *out = static_cast<float>(v);
  return {};
}

Status parse_int(std::string_view part, std::string_view text, int32_t* out) {
  float v = 0;
  MOE_TRY(parse_float(part, text, &v));
  if (!(v >= -1e6f && v <= 1e6f) || v != static_cast<float>(static_cast<int32_t>(v))) {
    return bad_text(part);
  }
  *out = static_cast<int32_t>(v);
  return {};
}

Status select_by(RouterConfig* r, bool threshold) {
  if (!has_softmax(*r)) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "router override: a %s router has no softmax over all experts to select "
                         "from",
                         router_info(r->kind).name);
  }
  if (r->kind == RouterKind::kCosine) {
    // The file's own k decides its weight rule; keep that rule when k changes.
    r->topk_norm = cosine_renormalises(*r) ? 1 : 0;
    r->by_threshold = threshold;
  } else {
    r->kind = threshold ? RouterKind::kThreshold : RouterKind::kSoftmax;
  }
  return {};
}

Status apply_part(RouterConfig* r, std::string_view part) {
  const size_t at = part.find_first_of(":=");
  if (at == std::string_view::npos) return bad_text(part);
  const std::string_view key = slice(part, 0, at + 1);
  const std::string_view value = slice(part, at + 1);
  if (key == "threshold:") {
    MOE_TRY(select_by(r, true));
    return parse_float(part, value, &r->threshold);
  }
  if (key == "topk:") {
    MOE_TRY(select_by(r, false));
    return parse_int(part, value, &r->k);
  }
  if (key == "gamma=") return parse_float(part, value, &r->gamma);
  if (key == "min_capacity=") return parse_int(part, value, &r->min_capacity);
  if (key == "min_k=") return parse_int(part, value, &r->min_k);
  if (key == "max_k=") return parse_int(part, value, &r->max_k);
  return bad_text(part);
}

Status validate_cosine(const RouterConfig& c) {
  if (!finite(c.tau) || c.tau <= 0) return range_error("tau", "a finite number above 0", c.tau);
  if (!finite(c.cosine_eps) || c.cosine_eps <= 0) {
    return range_error("cosine_eps", "a finite number above 0", c.cosine_eps);
  }
  if (c.by_threshold && c.gate != CosineGate::kSoftmax) {
    return Status::error(MOE_ERR_UNSUPPORTED, "router: a sigmoid gate has no threshold selection");
  }
  return check_int("topk_norm", c.topk_norm, -1, 1);
}

Status validate_threshold(const RouterConfig& c, int32_t n_experts) {
  if (!(c.threshold >= 0 && c.threshold <= 1)) {
    return range_error("threshold", "0..1", c.threshold);
  }
  MOE_TRY(check_int("min_k", c.min_k, 1, n_experts));
  if (c.max_k == 0) return {};
  return check_int("max_k", c.max_k, c.min_k, n_experts);
}

}  // namespace

bool has_softmax(const RouterConfig& config) {
  return config.kind == RouterKind::kSoftmax || config.kind == RouterKind::kThreshold ||
         (config.kind == RouterKind::kCosine && config.gate == CosineGate::kSoftmax);
}

Status validate_router(const RouterConfig& c, int32_t n_experts) {
  if (n_experts < 1) return range_error("n_experts", "at least 1", n_experts);
  if (router_info(c.kind).uses_k && !c.by_threshold) MOE_TRY(check_int("k", c.k, 1, n_experts));
  if (c.kind == RouterKind::kThreshold || c.by_threshold) {
    MOE_TRY(validate_threshold(c, n_experts));
  }
  if (c.kind == RouterKind::kCosine) {
    MOE_TRY(validate_cosine(c));
  } else if (c.by_threshold) {
    return Status::error(MOE_ERR_ARGUMENT, "router: by_threshold belongs to the cosine router");
  }
  if (c.kind == RouterKind::kSigmoid && c.weights == RouterWeights::kChosen) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "router: weights: a sigmoid router has raw or renormalised weights");
  }
  if (c.kind == RouterKind::kSparsemixer) {
    MOE_TRY(check_int("n_experts (sparsemixer)", n_experts, 2, INT32_MAX));
    if (!finite(c.jitter) || c.jitter < 0) return range_error("jitter", "at least 0", c.jitter);
  }
  if (!finite(c.scale)) return range_error("scale", "a finite number", c.scale);
  if (!finite(c.gamma) || c.gamma < 0) return range_error("gamma", "at least 0", c.gamma);
  return check_int("min_capacity", c.min_capacity, 0, INT32_MAX);
}

Status override_router(const RouterConfig& config, int32_t n_experts, std::string_view text,
                       RouterConfig* out) {
  RouterConfig r = config;
  bool bounds = false;
  for (size_t from = 0; from <= text.size();) {
    size_t end = text.find(',', from);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view part = slice(text, from, end - from);
    MOE_TRY(apply_part(&r, part));
    bounds = bounds || part.starts_with("min_k") || part.starts_with("max_k");
    from = end + 1;
  }
  if (bounds && r.kind != RouterKind::kThreshold && !r.by_threshold) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "router override: min_k and max_k are bounds of threshold:T");
  }
  MOE_TRY(validate_router(r, n_experts));
  *out = r;
  return {};
}

}  // namespace moe
