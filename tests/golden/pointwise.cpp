// SPDX-License-Identifier: MIT
// Norms, activations, softmax.

#include <cstring>

#include "kernels/router/common.h"
#include "tests/golden/golden.h"

namespace moe::golden {
namespace {

void run_norm(NormKind kind, const Case& c, Devices& devices, Outcome& outcome) {
  const Tensor x = c.in_tensor("x");
  const std::vector<float> in = x.floats();
  std::vector<float> weight;
  std::vector<float> bias;
  Norm norm;
  norm.kind = kind;
  norm.eps = static_cast<float>(c.real("eps", 1e-5));
  if (c.has("weight")) norm.weight = (weight = c.in_floats("weight")).data();
  if (c.has("bias")) norm.bias = (bias = c.in_floats("bias")).data();
  const auto y = same_on_all(devices.kernels(), outcome, [&](const CpuKernels& k) {
    std::vector<float> out(in.size());
    for (int32_t r = 0; r < x.height(); ++r) {
      k.norm_row(norm, &in[static_cast<size_t>(r * x.width())], x.width(),
                 &out[static_cast<size_t>(r * x.width())]);
    }
    return out;
  });
  outcome.out["y"] = to_json(y, x.shape);
}

void run_activation(const ActivationConfig& config, const char* gate, const char* up, const Case& c,
                    Devices& devices, Outcome& outcome) {
  const Tensor shape = c.in_tensor(up);
  const std::vector<float> u = shape.floats();
  const std::vector<float> g = gate != nullptr ? c.in_floats(gate) : std::vector<float>();
  if (gate != nullptr && g.size() != u.size()) {
    outcome.status = Status::error(MOE_ERR_SHAPE, "gate and up disagree");
    return;
  }
  const auto y = same_on_all(devices.kernels(), outcome, [&](const CpuKernels& k) {
    std::vector<float> out(u.size());
    (void)k.activation(config, gate != nullptr ? g.data() : nullptr, u.data(),
                       static_cast<int>(u.size()), out.data());
    return out;
  });
  outcome.out["y"] = to_json(y, shape.shape);
}

Runner plain(Activation kind) {
  return [kind](const Case& c, Devices& devices, Outcome& outcome) {
    ActivationConfig config;
    config.kind = kind;
    run_activation(config, nullptr, "x", c, devices, outcome);
  };
}

void run_gelu(const Case& c, Devices& devices, Outcome& outcome) {
  const std::string approx = c.text("approx", "none");
  if (approx != "none" && approx != "tanh") {
    outcome.status = Status::error(MOE_ERR_RANGE, "gelu: no approximation %s", approx.c_str());
    return;
  }
  plain(approx == "tanh" ? Activation::kGeluTanh : Activation::kGelu)(c, devices, outcome);
}

void run_swiglu(const Case& c, Devices& devices, Outcome& outcome) {
  run_activation(ActivationConfig(), "gate", "up", c, devices, outcome);
}

void run_clamped_swiglu(const Case& c, Devices& devices, Outcome& outcome) {
  ActivationConfig config;
  config.alpha = static_cast<float>(c.real("alpha", 1.702));
  config.limit = static_cast<float>(c.real("limit", 7.0));
  config.up_offset = 1;
  run_activation(config, "gate", "up", c, devices, outcome);
}

void run_sigmoid(const Case& c, Devices&, Outcome& outcome) {
  const Tensor x = c.in_tensor("x");
  std::vector<float> y = x.floats();
  for (float& v : y) v = sigmoid_float(v);
  outcome.out["y"] = to_json(y, x.shape);
}

void run_softmax(const Case& c, Devices&, Outcome& outcome) {
  const char* name = c.has("z") ? "z" : "x";
  const Tensor z = c.in_tensor(name);
  const std::vector<float> in = z.floats();
  std::vector<float> y(in.size());
  for (int32_t r = 0; r < z.height(); ++r) {
    const auto at = static_cast<size_t>(r * z.width());
    softmax_all(&in[at], z.width(), &y[at]);
  }
  outcome.out["y"] = to_json(y, z.shape);
}

}  // namespace

void add_pointwise(Runners& runners) {
  runners["rms_norm"] = [](const Case& c, Devices& d, Outcome& o) {
    run_norm(NormKind::kRms, c, d, o);
  };
  runners["layer_norm"] = [](const Case& c, Devices& d, Outcome& o) {
    run_norm(NormKind::kLayer, c, d, o);
  };
  runners["relu"] = plain(Activation::kRelu);
  runners["relu2"] = plain(Activation::kRelu2);
  runners["silu"] = plain(Activation::kSilu);
  runners["gelu"] = run_gelu;
  runners["sigmoid"] = run_sigmoid;
  runners["swiglu"] = run_swiglu;
  runners["clamped_swiglu"] = run_clamped_swiglu;
  runners["softmax"] = run_softmax;
}

}  // namespace moe::golden
