// SPDX-License-Identifier: MIT
// The order of a feed-forward part's steps on the CPU: norm, head, routing, experts, merge, shared
// expert, result.
#include "kernels/cpu/device_cpu_ffn.h"

#include <algorithm>

#include "kernels/math.h"
#include "kernels/router/table.h"

namespace moe {
namespace {

// Runs chunks of rows through op.shared up to the down inputs, and calls use(first row, n, inputs).
template <class F>
void for_shared_chunks(FfnCall& call, F&& use) {
  const FfnOp& op = call.op;
  for (int32_t first = 0; first < op.n_rows && call.s.live(); first += call.s.pair_chunk) {
    Segment segment;
    segment.expert = {op.shared, 0};
    segment.n = std::min(call.s.pair_chunk, op.n_rows - first);
    segment.row = first;
    segment.x = call.x + static_cast<int64_t>(first) * op.d_model;
    segment.ld_x = op.d_model;
    inner_activations(call, &segment, 1, 0, nullptr);
    if (!call.s.live()) return;
    LinearJob job;
    down_inputs(call, &segment, 1, 0, &job.input);
    job.args.weight = &op.shared->down;
    job.args.bias = op.shared->down_bias;
    job.args.ld_y = op.shared->down.rows;
    use(first, segment.n, job);
  }
}

// n_experts 0: the network writes directly to y.
void run_dense(FfnCall& call) {
  const FfnOp& op = call.op;
  for_shared_chunks(call, [&](int32_t first, int32_t, LinearJob& job) {
    job.args.y = op.y + static_cast<int64_t>(first) * op.shared->down.rows;
    job.args.accumulate = op.accumulate;
    job.args.scale = op.scale;
    call.rt.run_jobs(&job, 1);
  });
}

// sum = sum + gate * out for n rows from `first` on.
void add_gated(const FfnCall& call, int32_t first, int32_t n, const float* out, float* sum) {
  const int32_t d = call.op.d_model;
  call.rt.for_range(n, d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      call.rt.kernels.add_scaled(call.s.shared_gate[first + r], out + r * d, d,
                                 sum + (first + r) * d);
    }
  });
}

// sum = sum + gate * shared(x), gate 1 or sigmoid(x . g).
void add_shared(FfnCall& call, float* sum) {
  const FfnOp& op = call.op;
  CpuStream& s = call.s;
  if (!op.shared_gate.empty()) {
    call.rt.linear(s, op.shared_gate, nullptr, call.x, op.d_model, op.n_rows, s.shared_gate, 1);
    for (int32_t r = 0; r < op.n_rows; ++r) s.shared_gate[r] = sigmoid_float(s.shared_gate[r]);
  } else {
    std::fill_n(s.shared_gate, op.n_rows, 1.0f);
  }
  if (call.shared != nullptr) return add_gated(call, 0, op.n_rows, call.shared, sum);
  for_shared_chunks(call, [&](int32_t first, int32_t n, LinearJob& job) {
    job.args.y = s.out;
    call.rt.run_jobs(&job, 1);
    add_gated(call, first, n, s.out, sum);
  });
}

void write_result(const FfnCall& call, const float* sum) {
  const FfnOp& op = call.op;
  const int64_t d = op.d_model;
  call.rt.for_range(op.n_rows, d, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      if (op.accumulate) {
        call.rt.kernels.add_scaled(op.scale, sum + r * d, op.d_model, op.y + r * d);
      } else {
        for (int64_t i = 0; i < d; ++i) op.y[r * d + i] = op.scale * sum[r * d + i];
      }
    }
  });
}

void run_moe(FfnCall& call) {
  const FfnOp& op = call.op;
  CpuStream& s = call.s;
  call.subs = call.x;
  if (!op.head.empty()) {
    call.rt.linear(s, op.head, op.head_bias, call.x, op.d_model, op.n_rows, s.head, op.d_model);
    call.subs = s.head;
  }
  call.router_x = call.subs;
  if (op.router_norm.kind != NormKind::kNone) {  // without a head or merge layer, which use s.head
    call.rt.norm_rows(op.router_norm, op.x, op.d_model, op.n_rows, op.d_model, s.head);
    call.router_x = s.head;
  }
  route_layer(call);
  if (!s.live()) return;
  group_pairs(call);
  run_experts(call);
  if (!s.live()) return;
  float* sum = s.routed;
  if (!op.merge.empty()) {
    call.rt.linear(s, op.merge, op.merge_bias, s.routed, op.d_model, op.n_rows, s.head, op.d_model);
    sum = s.head;
  }
  if (op.shared != nullptr) add_shared(call, sum);
  if (s.live()) write_result(call, sum);
}

}  // namespace

void compute_shared(FfnCall& call, int32_t first) {
  float* const out = call.s.out + int64_t{first} * call.op.d_model;
  for_shared_chunks(call, [&](int32_t, int32_t, LinearJob& job) {
    job.args.y = out;
    call.rt.run_jobs(&job, 1);
  });
  call.shared = out;
}

void cpu_ffn(const CpuRuntime& rt, CpuStream& s, const FfnOp& op) {
  FfnCall call{rt, s, op};
  call.x = op.x;
  if (op.norm.kind != NormKind::kNone) {
    rt.norm_rows(op.norm, op.x, op.d_model, op.n_rows, op.d_model, s.normed);
    call.x = s.normed;
  }
  if (op.n_experts == 0) {
    call.d_in = op.d_model;
    run_dense(call);
    return;
  }
  call.d_in = op.d_model / op.n_subheads;
  call.n_tokens = op.n_rows * op.n_subheads;
  call.max_k = router_max_k(op.router, op.n_experts);
  run_moe(call);
}

}  // namespace moe
