// SPDX-License-Identifier: MIT
// Whole layers, computed by Device::ffn.

#include <cstring>

#include "quant/formats.h"
#include "tests/golden/routing.h"

namespace moe::golden {
namespace {

/// A matrix of a case: plain floats, or ternary or int8 with int8 activations.
Matrix read_matrix(const Json& j, TestLayer& layer) {
  if (!j.contains("kind")) {
    const Tensor t = tensor(j);
    return layer.keep({FormatId::kF32, t.floats(), t.rows(), t.cols()});
  }
  const Tensor codes = tensor(j.at("codes"));
  if (j.at("kind") == "ternary") {
    auto scale = static_cast<float>(number(j.at("scale")));
    if (j.value("scale_mode", "multiply") == "divide") scale = 1 / scale;
    return layer.keep({FormatId::kTernary2,
                       codes.codes(),
                       codes.rows(),
                       codes.cols(),
                       ActPrecision::kA8,
                       ScaleKind::kTensor,
                       {scale}});
  }
  const bool a8 = j.value("act", "int8") == "int8";
  return layer.keep({FormatId::kInt8, codes.codes(), codes.rows(), codes.cols(),
                     a8 ? ActPrecision::kA8 : ActPrecision::kF32, ScaleKind::kRow,
                     tensor(j.at("row_scale")).floats()});
}

const float* read_vector(const Json& j, const char* name, TestLayer& layer) {
  if (!j.contains(name) || j.at(name).is_null()) return nullptr;
  return layer.keep(tensor(j.at(name)).floats());
}

Activation read_activation(const std::string& act) {
  if (act == "swiglu" || act == "silu") return Activation::kSilu;
  if (act == "relu2_glu" || act == "relu2") return Activation::kRelu2;
  if (act == "relu") return Activation::kRelu;
  if (act == "gelu") return Activation::kGelu;
  if (act == "gelu_tanh") return Activation::kGeluTanh;
  throw std::runtime_error("unknown activation " + act);
}

Ffn read_ffn(const Json& j, TestLayer& layer) {
  Ffn f;
  layer.op.act.kind = read_activation(j.at("act"));
  if (j.contains("w_gate")) {
    f.gate = read_matrix(j.at("w_gate"), layer);
    f.up = read_matrix(j.at("w_up"), layer);
    f.down = read_matrix(j.at("w_down"), layer);
    f.gate_bias = read_vector(j, "b_gate", layer);
    f.up_bias = read_vector(j, "b_up", layer);
    f.down_bias = read_vector(j, "b_down", layer);
  } else {
    f.up = read_matrix(j.at("w1"), layer);
    f.down = read_matrix(j.at("w2"), layer);
    f.up_bias = read_vector(j, "b1", layer);
    f.down_bias = read_vector(j, "b2", layer);
  }
  if (const float* w = read_vector(j, "sub_norm", layer)) {
    f.sub_norm = {NormKind::kRms, j.value("sub_norm_eps", 1e-5f), w, nullptr};
  }
  return f;
}

void read_experts(const Json& list, TestLayer& layer) {
  layer.op.n_experts = static_cast<int32_t>(list.size());
  for (const Json& e : list) {
    std::vector<Ffn>& stack = layer.experts.emplace_back();
    if (!e.is_array()) {
      stack.push_back(read_ffn(e, layer));
      continue;
    }
    layer.n_sublayers = static_cast<int32_t>(e.size());
    for (const Json& s : e) {
      Ffn f = read_ffn(s, layer);
      f.in_norm = {NormKind::kLayer, s.value("ln_eps", 1e-5f), read_vector(s, "ln_weight", layer),
                   read_vector(s, "ln_bias", layer)};
      stack.push_back(f);
    }
  }
}

// Outputs y, indices, weights before capacity, kept, and the scores under the name `scores`.
void run_topk_layer(TestLayer& layer, const Case& c, const char* scores, Devices& devices,
                    Outcome& outcome) {
  const Tensor x = c.in_tensor("x");
  const LayerRun free = run_on_all(layer, x, devices, outcome);
  if (!outcome.status.ok()) return;
  set_arrival_capacity(c, layer.op.router);
  const LayerRun run = run_on_all(layer, x, devices, outcome);
  if (!outcome.status.ok()) return;
  const int32_t tokens = x.rows() * layer.op.n_subheads;
  outcome.out["y"] = to_json(run.y, x.shape);
  outcome.out[scores] = to_json(run.scores, {tokens, layer.op.n_experts});
  outcome.out["indices"] = to_json(run.expert, {tokens, run.max_k});
  outcome.out["weights"] = to_json(free.weight, {tokens, run.max_k});
  outcome.out["kept"] = to_json(run.kept, {tokens, run.max_k});
}

// u = x W_head^T + b, as the layer computes it; x if there is no head matrix.
std::vector<float> head_output(const TestLayer& layer, const Tensor& x, Device& device) {
  const std::vector<float> in = x.floats();
  if (layer.op.head.empty()) return in;
  std::vector<float> u(in.size());
  LinearOut out;
  out.weight = &layer.op.head;
  out.bias = layer.op.head_bias;
  out.y = u.data();
  out.ld_y = x.cols();
  LinearOp op;
  op.x = in.data();
  op.ld_x = op.d_in = x.cols();
  op.n_rows = x.rows();
  op.outs = &out;
  op.n_outs = 1;
  Stream* stream = device.open_stream(layer.shape(x.rows())).value();
  device.linear(*stream, op);
  device.close_stream(stream);
  return u;
}

// y = y + shared(x), with another activation than the experts'.
void add_dense(const TestLayer& layer, const Tensor& x, const ActivationConfig& act,
               Devices& devices, Outcome& outcome) {
  TestLayer dense;
  dense.op.d_model = x.cols();
  dense.op.act = act;
  dense.op.shared = &layer.shared;
  dense.op.accumulate = true;
  const std::vector<float> y = same_on_all(devices.all(), outcome, [&](Device& device) {
    return run_layer(device, dense, x.floats(), x.rows(), nullptr,
                     tensor(outcome.out["y"]).floats())
        .y;
  });
  outcome.out["y"] = to_json(y, x.shape);
}

void run_mh(const Case& c, Devices& devices, Outcome& outcome) {
  TestLayer layer;
  const Tensor x = c.in_tensor("x");
  FfnOp& op = layer.op;
  op.d_model = x.cols();
  op.n_subheads = c.integer("heads", 1);
  if (c.has("w_head")) op.head = read_matrix(c.in.at("w_head"), layer);
  if (c.has("w_merge")) op.merge = read_matrix(c.in.at("w_merge"), layer);
  op.head_bias = read_vector(c.in, "b_head", layer);
  op.merge_bias = read_vector(c.in, "b_merge", layer);
  op.router_weights.scores = read_matrix(c.in.at("w_router"), layer);
  op.router.k = c.integer("k", 1);
  if (c.flag("normalize", false)) op.router.weights = RouterWeights::kRenormalised;
  read_experts(c.in.at("experts"), layer);
  const ActivationConfig act = op.act;
  ActivationConfig shared_act = act;
  if (c.has("shared")) {
    layer.shared = read_ffn(c.in.at("shared"), layer);
    op.shared = &layer.shared;
    std::swap(shared_act, op.act);
  }
  // An operation has one activation; a shared expert with another one is added by a second
  // operation.
  const bool apart = shared_act.kind != act.kind;
  if (apart) op.shared = nullptr;
  run_topk_layer(layer, c, "logits", devices, outcome);
  if (!outcome.status.ok()) return;
  if (apart) add_dense(layer, x, shared_act, devices, outcome);
  const int32_t d_in = op.d_model / op.n_subheads;
  outcome.out["sub_tokens"] =
      to_json(head_output(layer, x, *devices.all()[0]), {x.rows() * op.n_subheads, d_in});
  op.merge = Matrix();
  op.shared = nullptr;
  outcome.out["sub_outputs"] =
      to_json(run_on_all(layer, x, devices, outcome).y, {x.rows() * op.n_subheads, d_in});
}

void run_xmoe(const Case& c, Devices& devices, Outcome& outcome) {
  TestLayer layer;
  const Tensor x = c.in_tensor("x");
  layer.op.d_model = x.cols();
  layer.op.router = threshold_config(c);
  layer.op.router_weights.scores = read_matrix(c.in.at("w_router"), layer);
  read_experts(c.in.at("experts"), layer);
  const LayerRun run = run_on_all(layer, x, devices, outcome);
  if (!outcome.status.ok()) return;
  outcome.out["y"] = to_json(run.y, x.shape);
  set_by_expert(x.rows(), layer.op.n_experts, run.max_k, layer.op.router, run.expert, run.weight,
                run.kept, run.count, outcome);
}

void run_cosine_layer(const Case& c, Devices& devices, Outcome& outcome) {
  TestLayer layer;
  const Tensor x = c.in_tensor("x");
  set_cosine_router(c, c.in_tensor("proj"), c.in_tensor("embeddings"), x.cols(), layer, outcome);
  read_experts(c.in.at("experts"), layer);
  if (outcome.status.ok()) run_topk_layer(layer, c, "scores", devices, outcome);
}

// Splits a dense network into experts that all run, each with weight 1: probability 1 / N, scale N.
void split_into_experts(const Case& c, int32_t parts, const Ffn& dense, TestLayer& layer) {
  const Tensor w1 = c.in_tensor("w1");
  const Tensor w2 = c.in_tensor("w2");
  const int32_t d = w1.cols();
  const int32_t size = w1.rows() / parts;
  layer.op.n_experts = parts;
  layer.op.router.kind = RouterKind::kThreshold;
  layer.op.router.threshold = 1;
  layer.op.router.scale = static_cast<float>(parts);
  layer.op.router_weights.scores =
      layer.keep({FormatId::kF32, std::vector<float>(static_cast<size_t>(parts * d)), parts, d});
  for (int32_t i = 0; i < parts; ++i) {
    std::vector<float> up;
    std::vector<float> down;
    std::vector<float> bias;
    for (int32_t r = i * size; r < (i + 1) * size; ++r) {
      for (int32_t k = 0; k < d; ++k) up.push_back(weight(dense.up, r, k));
    }
    for (int32_t r = 0; r < d; ++r) {
      for (int32_t k = i * size; k < (i + 1) * size; ++k) down.push_back(weight(dense.down, r, k));
      bias.push_back(dense.down_bias != nullptr ? dense.down_bias[r] / static_cast<float>(parts)
                                                : 0.0f);
    }
    Ffn f;
    f.up = layer.keep({FormatId::kF32, up, size, d});
    f.down = layer.keep({FormatId::kF32, down, d, size});
    f.up_bias = dense.up_bias != nullptr ? dense.up_bias + i * size : nullptr;
    f.down_bias = layer.keep(bias);
    layer.experts.push_back({f});
  }
}

void run_dense_split(const Case& c, Devices& devices, Outcome& outcome) {
  TestLayer layer;
  const Tensor x = c.in_tensor("x");
  layer.op.d_model = x.cols();
  Json ffn = c.in;
  ffn["act"] = c.text("act", "gelu");
  layer.shared = read_ffn(ffn, layer);
  layer.op.shared = &layer.shared;
  outcome.out["y"] = to_json(run_on_all(layer, x, devices, outcome).y, x.shape);
  if (!outcome.status.ok()) return;
  const int32_t parts = c.integer("parts", 1);
  if (parts < 1 || layer.shared.up.rows % parts != 0) {
    outcome.status = Status::error(MOE_ERR_SHAPE, "parts must divide d_ff");
    return;
  }
  layer.op.shared = nullptr;
  split_into_experts(c, parts, layer.shared, layer);
  outcome.out["sum_of_parts"] = to_json(run_on_all(layer, x, devices, outcome).y, x.shape);
}

// A network whose output is `row` for every input.
Ffn constant_ffn(const std::vector<float>& row, TestLayer& layer) {
  const auto d = static_cast<int32_t>(row.size());
  Ffn f;
  f.up = layer.keep({FormatId::kF32, std::vector<float>(row.size()), 1, d});
  f.down = layer.keep({FormatId::kF32, std::vector<float>(row.size()), d, 1});
  f.down_bias = layer.keep(row);
  return f;
}

// Runs each row by itself: one expert (weight 1) with the output `routed`, and a shared expert with
// the output `shared`.
void run_shared_gate(const Case& c, Devices& devices, Outcome& outcome) {
  const Tensor x = c.in_tensor("x");
  const auto d = static_cast<size_t>(x.cols());
  const std::vector<float> routed = c.in_floats("routed");
  const std::vector<float> shared = c.in_floats("shared");
  std::vector<float> y;
  for (size_t t = 0; t < static_cast<size_t>(x.rows()) && outcome.status.ok(); ++t) {
    TestLayer layer;
    layer.op.d_model = x.cols();
    layer.op.n_experts = 1;
    layer.op.router_weights.scores =
        layer.keep({FormatId::kF32, std::vector<float>(d), 1, x.cols()});
    const auto row = [&](const std::vector<float>& v) {
      return std::vector<float>(&v[t * d], &v[t * d] + d);
    };
    layer.experts = {{constant_ffn(row(routed), layer)}};
    layer.shared = constant_ffn(row(shared), layer);
    layer.op.shared = &layer.shared;
    layer.op.shared_gate = read_matrix(c.in.at("w_gate"), layer);
    Tensor one;
    one.shape = {1, x.cols()};
    one.data.assign(x.data.begin() + static_cast<int64_t>(t * d),
                    x.data.begin() + static_cast<int64_t>((t + 1) * d));
    const LayerRun run = run_on_all(layer, one, devices, outcome);
    y.insert(y.end(), run.y.begin(), run.y.end());
  }
  outcome.out["y"] = to_json(y, x.shape);
}

}  // namespace

void add_layers(Runners& runners) {
  runners["mh_moe_layer"] = run_mh;
  runners["xmoe_layer"] = run_xmoe;
  runners["cosine_moe_layer"] = run_cosine_layer;
  runners["dense_split"] = run_dense_split;
  runners["shared_expert_gate"] = run_shared_gate;
}

}  // namespace moe::golden
