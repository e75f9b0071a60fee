// SPDX-License-Identifier: MIT
// Networks on rows: gate, up, activation, norm, down.

#include "kernels/cuda/ffn_call.h"

namespace moe::cuda {
namespace {

MatmulOut of_table(const Matrix& like, const float* bias, const Weight* table) {
  MatmulOut out;
  out.weight = {like, bias};
  if (like.empty()) return out;  // absent: networks without a gate
  out.table = table;
  return out;
}

void down_rows(FfnCall& call, const RowGroups& groups, const NetworkTable& network,
               const MatmulInput& in, float* y, bool accumulate) {
  MatmulOp down;
  down.rows = groups;
  down.rows.input_row = nullptr;
  down.in = in;
  down.n_outs = 1;
  down.outs[0] = of_table(network.like.down, network.like.down_bias, network.down);
  down.outs[0].y = y;
  down.outs[0].ld_y = call.d_in;
  down.outs[0].accumulate = accumulate;
  call.s.check(matmul(call.s.stream, down), "down");
}

// X-MoE: v = v + W2 act(W1 norm(v)), sub-layer by sub-layer, in place of the outputs.
void run_stack(FfnCall& call, const Pass& pass) {
  CudaStream& s = call.s;
  RowGroups groups = pass.groups;
  s.check(
      gather_rows(s.stream, {groups.rows, groups.input_row, call.subs, call.d_in, pass.outputs}),
      "gathering tokens");
  groups.input_row = nullptr;
  for (int32_t n = 0; n < pass.table->n_networks; ++n) {
    const NetworkTable& network = pass.table->networks[n];
    WantedInputs wanted;
    wanted.add(network.like.gate);
    wanted.add(network.like.up);
    InputRows rows = input_rows(groups.rows, call.d_in, pass.outputs);
    rows.norm = {network.like.in_norm, network.in_norm, pass.expert};
    rows.normed = s.scratch.stack_in;
    const MatmulInput in = make_input(s, rows, wanted, s.scratch.mid);
    const MatmulInput hidden = hidden_rows(call, groups, network, in, pass.expert);
    down_rows(call, groups, network, hidden, pass.outputs, true);
  }
}

}  // namespace

InputRows input_rows(RowCount n, int32_t d, const float* x) {
  InputRows rows;
  rows.rows = n;
  rows.d = d;
  rows.x = x;
  rows.ld_x = d;
  return rows;
}

MatmulInput hidden_rows(FfnCall& call, const RowGroups& groups, const NetworkTable& network,
                        const MatmulInput& in, const int32_t* expert) {
  CudaStream& s = call.s;
  const Ffn& like = network.like;
  GatedOp gated;
  gated.rows = groups;
  gated.in = in;
  gated.gate = of_table(like.gate, like.gate_bias, network.gate);
  gated.up = of_table(like.up, like.up_bias, network.up);
  gated.act = call.op.act;
  gated.hidden = s.scratch.hidden;
  gated.ld_hidden = like.up.rows;
  gated.n_positive = call.n_positive;
  s.check(gated_matmul(s.stream, gated), "gate and up");
  WantedInputs wanted;
  wanted.add(like.down);
  InputRows rows = input_rows(groups.rows, like.up.rows, s.scratch.hidden);
  rows.normed = s.scratch.hidden;
  if (like.sub_norm.kind != NormKind::kNone) {
    rows.norm = {like.sub_norm, network.sub_norm, expert};
    if (network.sub_norm == nullptr) rows.norm.norms = nullptr;
  }
  return make_input(s, rows, wanted, s.scratch.mid);
}

MatmulInput codes_of(FfnCall& call, int32_t first, int32_t n, int32_t d, const float* x,
                     const WantedInputs& wanted) {
  const bool there = (call.have.a8 || !wanted.a8) && (call.have.a8_block || !wanted.a8_block) &&
                     (call.have.a8_group || !wanted.a8_group);
  if (there && x == call.x && first == 0 && n == call.op.n_rows && d == call.op.d_model) {
    MatmulInput in = call.input;
    in.x = x;
    in.ld_x = d;
    return in;
  }
  call.have = {};  // its memory is reused
  return make_input(call.s, input_rows({n, nullptr}, d, x + int64_t{first} * d), wanted,
                    call.s.scratch.in);
}

void run_pass(FfnCall& call, const Pass& pass) {
  call.activations_per_pair = 0;
  for (int32_t n = 0; n < pass.table->n_networks; ++n) {
    call.activations_per_pair += static_cast<uint64_t>(pass.table->networks[n].like.up.rows);
  }
  if (pass.table->stack) return run_stack(call, pass);
  const NetworkTable& network = pass.table->networks[0];
  const MatmulInput hidden = hidden_rows(call, pass.groups, network, pass.in, pass.expert);
  down_rows(call, pass.groups, network, hidden, pass.outputs, false);
}

}  // namespace moe::cuda
