// SPDX-License-Identifier: MIT
// Parses "PARAMETER=A,B,C" and computes what the experts of a routing cost.
#include "cli/text/sweep.h"

#include <cmath>
#include <cstdio>
#include <string_view>

namespace moe_cli {
namespace {

constexpr double kMostSweptValues = 1000;
constexpr struct Parameter {
  const char* name;
  bool kind;  // of router, as in "threshold:0.5"
} kParameters[] = {{"threshold", true}, {"topk", true}, {"gamma", false}, {"resident", false}};

const Parameter* find_parameter(const std::string& name) {
  for (const Parameter& known : kParameters) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

[[noreturn]] void fail_form(const std::string& text) {
  std::string names;
  for (const Parameter& known : kParameters) names += std::string(known.name) + ", ";
  throw UsageError("--sweep: expected NAME=FROM:TO:STEP with NAME one of " + names + "found '" +
                   text + "'");
}

double read_number(const std::string& part, const std::string& text) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(part, &used);
  } catch (const std::exception&) {
    fail_form(text);
  }
  if (used != part.size() || !std::isfinite(value)) fail_form(text);
  return value;
}

/// Multiplications and additions of one expert of the layer, for one (sub-)token.
double expert_flops(const moe_model* model, int32_t layer) {
  double weights = 0;
  moe_error error;
  for (size_t i = 0; i < moe_model_tensor_count(model); ++i) {
    moe_tensor_info t{};
    t.struct_size = sizeof t;
    check(moe_model_get_tensor_info(model, i, &t, &error), error);
    if (t.layer != layer || t.expert != 0 || std::string_view(t.part) != "experts") continue;
    if (t.rows > 1 && t.cols > 1) weights += static_cast<double>(t.rows) * t.cols;
  }
  return 2 * weights;
}

}  // namespace

Sweep parse_sweep(const std::string& text) {
  const size_t equal = text.find('=');
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  if (equal == std::string::npos || first == std::string::npos || second == std::string::npos ||
      first < equal) {
    fail_form(text);
  }
  Sweep sweep{text.substr(0, equal), {}};
  if (find_parameter(sweep.name) == nullptr) fail_form(text);
  const double from = read_number(text.substr(equal + 1, first - equal - 1), text);
  const double to = read_number(text.substr(first + 1, second - first - 1), text);
  const double step = read_number(text.substr(second + 1), text);
  if (!(step > 0) || to < from) {
    throw UsageError("--sweep: expected FROM at most TO and STEP above 0, found '" + text + "'");
  }
  const double n = std::floor((to - from) / step + 1e-6) + 1;
  if (!(n <= kMostSweptValues)) {
    throw UsageError("--sweep: expected at most 1000 values, '" + text + "' has more");
  }
  for (int i = 0; i < static_cast<int>(n); ++i) {
    char value[32];
    std::snprintf(value, sizeof value, "%.6g", from + i * step);
    sweep.values.emplace_back(value);
  }
  return sweep;
}

std::string swept_router(const std::string& base, const Sweep& sweep, size_t i) {
  const std::string& value = sweep.values[i];
  if (find_parameter(sweep.name)->kind) {
    if (base.find(':') != std::string::npos) {
      throw UsageError("--router " + base + ": --sweep " + sweep.name +
                       " replaces the rule; expected its other parameters alone, such as gamma=1");
    }
    return sweep.name + ":" + value + (base.empty() ? "" : ",") + base;
  }
  const std::string key = sweep.name + "=";
  if (base.find(key) != std::string::npos) {
    throw UsageError("--sweep and --router both set " + sweep.name);
  }
  return base + (base.empty() ? "" : ",") + key + value;
}

ExpertCost expert_cost(const moe_model* model, const Json& layers) {
  ExpertCost cost;
  for (const Json& line : layers) {
    const auto l = line["layer"].get<int32_t>();
    const double each = line["mean_experts_per_token"].get<double>();
    cost.experts += each / static_cast<double>(layers.size());
    cost.flops += each * layer_info(model, l).n_subheads * expert_flops(model, l);
  }
  return cost;
}

}  // namespace moe_cli
