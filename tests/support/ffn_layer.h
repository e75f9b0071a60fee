// SPDX-License-Identifier: MIT
#pragma once
// One feed-forward part from plain data for tests: owns the memory of an FfnOp, and runs it on a
// device.

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "kernels/cpu/device_cpu.h"
#include "kernels/router/table.h"
#include "tests/support/packed_matrix.h"

namespace moe {

class TestLayer final : public ExpertSource {
 public:
  TestLayer() { op.experts = this; }
  TestLayer(const TestLayer&) = delete;
  TestLayer& operator=(const TestLayer&) = delete;

  FfnOp op;                               // x, y, n_rows, rows are set by run_layer()
  std::vector<std::vector<Ffn>> experts;  // [expert][sub-layer]
  int32_t n_sublayers = 0;
  Ffn shared;  // op.shared points here if present

  const float* keep(std::vector<float> v) { return vectors_.emplace_back(std::move(v)).data(); }
  const Matrix& keep(PackedMatrix m) { return matrices_.emplace_back(std::move(m)).get(); }

  Status acquire(int32_t expert, const ExpertWait&, Expert* out) override {
    if (expert == fail_at) return Status::error(MOE_ERR_IO, "expert %d cannot be read", expert);
    ++held;
    most_held = std::max(most_held, held);
    *out = {experts[static_cast<size_t>(expert)].data(), n_sublayers};
    return {};
  }
  void release(int32_t) override { --held; }
  bool would_evict(int32_t expert) override {
    return std::count(missing.begin(), missing.end(), expert) != 0;
  }

  std::vector<int32_t> missing;  // experts whose loading would evict others
  int32_t fail_at = -1;
  int held = 0;
  int most_held = 0;

  StreamShape shape(int32_t max_rows) const {
    StreamShape s;
    s.max_rows = max_rows;
    s.d_model = op.d_model;
    s.max_d_in = op.d_model;
    s.max_experts = op.n_experts;
    s.max_subheads = op.n_subheads;
    s.max_routed = op.n_experts;
    s.max_d_e = op.router_weights.proj.rows;
    s.max_d_ff = op.shared != nullptr ? op.shared->up.rows : 0;
    for (const auto& stack : experts) {
      for (const Ffn& f : stack) s.max_d_ff = std::max(s.max_d_ff, f.up.rows);
    }
    s.max_d_in = std::max(s.max_d_in, s.max_d_ff);
    return s;
  }

 private:
  std::deque<std::vector<float>> vectors_;
  std::deque<PackedMatrix> matrices_;
};

struct LayerRun {
  Status status;
  std::vector<float> y;
  int32_t max_k = 0;
  std::vector<int32_t> expert;
  std::vector<float> weight;
  std::vector<uint8_t> kept;
  std::vector<int32_t> count;
  std::vector<float> scores;
};

/// y (n_rows, d_model); starts from `y` unless it is empty (for accumulate).
inline LayerRun run_layer(Device& device, const TestLayer& layer, const std::vector<float>& x,
                          int32_t n_rows, const BatchRow* rows = nullptr,
                          std::vector<float> y = {}) {
  LayerRun run;
  FfnOp op = layer.op;
  y.resize(x.size());
  run.y = std::move(y);
  op.x = x.data();
  op.y = run.y.data();
  op.n_rows = n_rows;
  op.rows = rows;
  Routing routing;
  const auto tokens = static_cast<size_t>(n_rows) * static_cast<size_t>(op.n_subheads);
  if (op.n_experts > 0) {
    run.max_k = router_max_k(op.router, op.n_experts);
    const size_t slots = tokens * static_cast<size_t>(run.max_k);
    run.expert.resize(slots, -1);
    run.weight.resize(slots);
    run.kept.resize(slots);
    run.count.resize(tokens);
    run.scores.resize(tokens * static_cast<size_t>(op.n_experts));
    routing = {0,
               0,
               run.expert.data(),
               run.weight.data(),
               run.kept.data(),
               run.count.data(),
               run.scores.data()};
    op.routing_out = &routing;
  }
  Result<Stream*> stream = device.open_stream(layer.shape(n_rows));
  run.status = stream.status();
  if (!stream.ok()) return run;
  device.ffn(*stream.value(), op);
  run.status = device.sync(*stream.value());
  device.close_stream(stream.value());
  return run;
}

}  // namespace moe
