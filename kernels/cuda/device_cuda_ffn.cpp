// SPDX-License-Identifier: MIT
// The feed-forward part of a layer: routing, experts, ordered sum, shared expert.
//
// If every expert of the layer is on the GPU nothing waits: kernels read the selected experts from
// device memory. Otherwise see expert_waves.cpp.

#include <algorithm>
#include <utility>

#include "kernels/cuda/ffn_call.h"
#include "kernels/router/table.h"

namespace moe::cuda {
namespace {

// --- Routing -------------------------------------------------------------------------------------

Matrix in_float(Matrix m) {
  m.act = ActPrecision::kF32;
  return m;
}

void compute_scores(FfnCall& call) {
  CudaStream& s = call.s;
  const RouterWeightsView& w = call.op.router_weights;
  MatmulInput in;
  in.x = call.subs;
  in.ld_x = call.d_in;
  switch (router_info(call.op.router).scores) {
    case RouterScores::kTable:
      return;
    case RouterScores::kLinear:
      return plain_matmul(s, in, call.n_tokens, in_float(w.scores), w.bias, s.scratch.scores,
                          call.op.n_experts);
    case RouterScores::kCosine:
      break;
  }
  const Matrix proj = in_float(w.proj);
  plain_matmul(s, in, call.n_tokens, proj, w.proj_bias, s.scratch.cosine, proj.rows);
  CosineOp cosine;
  cosine.config = call.op.router;
  cosine.projected = s.scratch.cosine;
  cosine.embedding = in_float(w.embedding);
  cosine.lengths = w.embedding_length;
  cosine.n_tokens = call.n_tokens;
  cosine.scores = s.scratch.scores;
  s.check(cosine_scores(s.stream, cosine), "cosine scores");
}

// Tokens whose pairs are computed at once.
int32_t chunk_tokens(const FfnCall& call) {
  return std::max(1, call.s.pair_capacity / std::max(1, call.max_k));
}

void route_layer(FfnCall& call) {
  CudaStream& s = call.s;
  compute_scores(call);
  DeviceRouteOp route;
  route.config = call.op.router;
  const bool scored = router_info(route.config).scores != RouterScores::kTable;
  route.scores = scored ? s.scratch.scores : nullptr;
  route.selection_bias = call.op.router_weights.selection_bias;
  route.table = call.op.router_weights.table;
  route.rows = call.rows;
  route.n_subheads = call.op.n_subheads;
  route.n_experts = call.op.n_experts;
  route.out = routing_of(call);
  route.prob = s.scratch.prob;
  route.floats = s.scratch.route_floats;
  route.ints = s.scratch.route_ints;
  route.fault = &s.words->fault;
  call.grouped = call.n_tokens <= chunk_tokens(call);
  if (call.grouped) {
    s.check(route_and_group(s.stream, route, s.scratch.pairs, s.scratch.group_scratch), "routing");
  } else {
    s.check(route_tokens(s.stream, route), "routing");
  }
}

template <class T>
T* from(T* base, int64_t n) {
  return base == nullptr ? nullptr : base + n;
}

Routing slice(const Routing& all, int32_t first, int32_t n) {
  const int64_t slot = static_cast<int64_t>(first) * all.max_k;
  Routing r = all;
  r.n_tokens = n;
  r.expert = from(all.expert, slot);
  r.weight = from(all.weight, slot);
  r.kept = from(all.kept, slot);
  r.count = from(all.count, first);
  return r;
}

// All pairs of the call's n tokens; `table`: null if experts are offloaded.
Pass pass_of(FfnCall& call, int32_t n, const LayerTable* table) {
  const PairLists& pairs = call.s.scratch.pairs;
  Pass pass;
  pass.table = table;
  pass.groups.rows = {n * call.max_k, pairs.n_pairs};
  pass.groups.max_groups = std::min(call.op.n_experts, n * call.max_k);
  pass.groups.n_groups = pairs.n_groups;
  pass.groups.group = pairs.group;
  pass.groups.begin = pairs.begin;
  pass.groups.input_row = pairs.token;
  pass.expert = pairs.expert;
  pass.outputs = call.s.scratch.outputs;
  // For experts that are not known yet.
  WantedInputs wanted{.floats = true, .a8 = true, .a8_block = true, .a8_group = true};
  if (table != nullptr) {
    wanted = {};
    if (!table->stack) wanted.add(table->networks[0].like.gate);
    if (!table->stack) wanted.add(table->networks[0].like.up);
  }
  pass.in = codes_of(call, 0, n, call.d_in, call.subs, wanted);
  return pass;
}

// Sums the outputs of the call's pairs for tokens from `first` on. `sum` null: to y.
void add_up(FfnCall& call, int32_t first, bool stack, float* sum) {
  CudaStream& s = call.s;
  const int64_t at = static_cast<int64_t>(first) * call.d_in;
  CombineOp add;
  add.routing = call.routing;
  add.place = s.scratch.pairs.place;
  add.outputs = s.scratch.outputs;
  add.subtract = stack ? call.subs : nullptr;
  add.d = call.d_in;
  if (sum == nullptr) {
    add.y = call.op.y + at;
    add.accumulate = call.op.accumulate;
    add.scale = call.op.scale;
  } else {
    add.sum = sum + at;
  }
  s.check(combine(s.stream, add), "adding up the experts");
}

// sum (n_tokens, d_in) = the experts' output, a chunk of tokens at a time; null: writes directly to
// the layer's y.
void run_experts(FfnCall& call, float* sum) {
  CudaStream& s = call.s;
  const Routing routing = routing_of(call);
  const LayerTable* table = call.table;
  if (table == nullptr && s.capturing != nullptr) {
    s.capturing->refused = true;  // it must wait; end_step() makes the caller repeat the step
    return;
  }
  const float* subs = call.subs;
  const int32_t chunk = chunk_tokens(call);
  for (int32_t first = 0; first < call.n_tokens && s.live(); first += chunk) {
    const int32_t n = std::min(chunk, call.n_tokens - first);
    call.subs = subs + static_cast<int64_t>(first) * call.d_in;
    call.routing = slice(routing, first, n);
    if (!call.grouped) {
      s.check(group_pairs(s.stream, call.routing, call.op.n_experts, s.scratch.pairs,
                          s.scratch.group_scratch),
              "grouping by expert");
    }
    if (!s.live()) break;
    const Pass pass = pass_of(call, n, table);
    bool stack = table != nullptr && table->stack;
    if (table != nullptr) {
      run_pass(call, pass);
    } else {
      const Status status = run_waves(call, pass, &stack);
      if (!status.ok()) s.latch(status);
    }
    if (s.live()) add_up(call, first, stack, sum);
  }
  call.subs = subs;
}

// --- The whole layer -----------------------------------------------------------------------------

// A single network: no groups.
NetworkTable table_of(const Ffn& ffn) {
  NetworkTable network;
  network.like = ffn;
  return network;
}

// Hidden activations of op.shared for rows [first, first + n).
MatmulInput shared_hidden(FfnCall& call, int32_t first, int32_t n, const NetworkTable& network) {
  WantedInputs wanted;
  wanted.add(network.like.gate);
  wanted.add(network.like.up);
  const MatmulInput in = codes_of(call, first, n, call.op.d_model, call.x, wanted);
  RowGroups groups;
  groups.rows.n = n;
  return hidden_rows(call, groups, network, in, nullptr);
}

// y (+)= scale * shared(x), a chunk of rows at a time.
void run_shared(FfnCall& call, float* y, bool accumulate, float scale) {
  CudaStream& s = call.s;
  const Ffn& ffn = *call.op.shared;
  const NetworkTable network = table_of(ffn);
  for (int32_t first = 0; first < call.op.n_rows && s.live(); first += s.pair_capacity) {
    const int32_t n = std::min(s.pair_capacity, call.op.n_rows - first);
    const MatmulInput hidden = shared_hidden(call, first, n, network);
    plain_matmul(s, hidden, n, ffn.down, ffn.down_bias,
                 y + static_cast<int64_t>(first) * ffn.down.rows, ffn.down.rows, accumulate, scale);
  }
}

// Multiplies op.head or op.merge with rows of width d_model.
void mix_heads(FfnCall& call, const Matrix& weight, const float* bias, const float* x, float* y) {
  CudaStream& s = call.s;
  WantedInputs wanted;
  wanted.add(weight);
  const MatmulInput in = codes_of(call, 0, call.op.n_rows, call.op.d_model, x, wanted);
  plain_matmul(s, in, call.op.n_rows, weight, bias, y, call.op.d_model);
}

void run_moe(FfnCall& call) {
  const FfnOp& op = call.op;
  CudaStream& s = call.s;
  call.subs = call.x;
  if (!op.head.empty()) {
    mix_heads(call, op.head, op.head_bias, call.x, s.scratch.head);
    call.subs = s.scratch.head;
  }
  route_layer(call);
  const bool experts_alone = op.merge.empty() && op.shared == nullptr;
  run_experts(call, experts_alone ? nullptr : s.scratch.routed);
  if (experts_alone) return;
  MergeOp merge;
  merge.sum = s.scratch.routed;
  if (!op.merge.empty()) {
    mix_heads(call, op.merge, op.merge_bias, s.scratch.routed, s.scratch.head);
    merge.sum = s.scratch.head;
  }
  if (op.shared != nullptr) {
    uint64_t* counted = std::exchange(call.n_positive, nullptr);  // only of routed experts
    run_shared(call, s.scratch.shared, false, 1);
    call.n_positive = counted;
    merge.shared = s.scratch.shared;
  }
  if (!op.shared_gate.empty()) {
    WantedInputs wanted;
    wanted.add(op.shared_gate);
    const MatmulInput in = codes_of(call, 0, op.n_rows, op.d_model, call.x, wanted);
    plain_matmul(s, in, op.n_rows, op.shared_gate, nullptr, s.scratch.gate, 1);
    merge.gate = s.scratch.gate;
  }
  if (!s.live()) return;
  merge.n_rows = op.n_rows;
  merge.d = op.d_model;
  merge.accumulate = op.accumulate;
  merge.scale = op.scale;
  merge.y = op.y;
  s.check(merge_rows(s.stream, merge), "the layer's sum");
}

void run_layer(FfnCall& call) {
  const FfnOp& op = call.op;
  if (op.n_experts == 0) {
    call.activations_per_pair = static_cast<uint64_t>(op.shared->up.rows);
    return run_shared(call, op.y, op.accumulate, op.scale);
  }
  call.d_in = op.d_model / op.n_subheads;
  call.n_tokens = op.n_rows * op.n_subheads;
  call.max_k = router_max_k(op.router, op.n_experts);
  run_moe(call);
}

}  // namespace

Routing routing_of(const FfnCall& call) {
  Routing r = call.s.scratch.routing;
  r.n_tokens = call.n_tokens;
  r.max_k = call.max_k;
  r.scores = nullptr;
  return r;
}

// The precisions of x that this layer's matrices need, as far as known in advance.
WantedInputs wanted_of_layer(const FfnOp& op, const LayerTable* table) {
  WantedInputs wanted{.floats = true};
  if (!op.head.empty()) {
    wanted.add(op.head);
    return wanted;
  }
  if (table != nullptr && op.n_subheads == 1 && !table->stack) {
    wanted.add(table->networks[0].like.gate);
    wanted.add(table->networks[0].like.up);
  }
  if (op.shared != nullptr) {
    wanted.add(op.shared->gate);
    wanted.add(op.shared->up);
  }
  wanted.add(op.shared_gate);
  return wanted;
}

void cuda_ffn(CudaDevice& device, CudaStream& s, const FfnOp& op) {
  if (op.n_experts > 0) {
    const Status status = device.check_routed(router_max_k(op.router, op.n_experts));
    if (!status.ok()) return s.latch(status);
  }
  FfnCall call{device, s, op};
  call.x = op.x;
  call.rows = device_rows(s, op.rows, op.n_rows);
  if (!s.live()) return;
  if (op.n_experts > 0 && op.experts->all_stay()) {
    const Status status = device.tables().find(*op.experts, op.n_experts, s.capturing != nullptr,
                                               &s.cancelled, &call.table);
    if (!status.ok()) return s.latch(status);
  }
  if (op.norm.kind != NormKind::kNone) {
    InputRows rows = input_rows({op.n_rows, nullptr}, op.d_model, op.x);
    rows.norm.one = op.norm;
    rows.normed = s.scratch.normed;
    call.have = wanted_of_layer(op, call.table);
    call.input = make_input(s, rows, call.have, s.scratch.in);
    call.x = call.input.x;
  }
  begin_counting(call);
  run_layer(call);
  Status status = add_statistics(call);
  if (status.ok()) status = report_routing(call);
  if (!status.ok()) s.latch(status);
}

void CudaDevice::ffn(Stream& stream, const FfnOp& op) {
  CudaStream& s = static_cast<CudaStream&>(stream);
  if (!begin_op(s) || op.n_rows == 0) return;
  cuda_ffn(*this, s, op);
}

}  // namespace moe::cuda
