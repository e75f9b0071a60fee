// SPDX-License-Identifier: MIT
// Operations without routing: embedding, norm, matrix products, attention.

#include <algorithm>

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {
namespace {

CudaStream& own(Stream& s) { return static_cast<CudaStream&>(s); }

}  // namespace

MatmulInput make_input(CudaStream& s, const InputRows& rows, const WantedInputs& wanted,
                       const MatmulInput& buffers) {
  MatmulInput in;
  in.x = rows.x;
  in.ld_x = rows.ld_x;
  PrepareOp op;
  op.rows = rows.rows;
  op.d = rows.d;
  op.x = rows.x;
  op.ld_x = rows.ld_x;
  op.norm = rows.norm;
  const bool normed = rows.norm.norms != nullptr || rows.norm.one.kind != NormKind::kNone;
  if (wanted.floats && normed) {
    op.normed = rows.normed;
    in.x = rows.normed;
    in.ld_x = rows.d;
  }
  if (wanted.a8) {
    op.a8 = buffers.a8;
    op.a8.ld = codes_ld(rows.d);
    in.a8 = op.a8;
  }
  if (wanted.a8_block) {
    op.a8_block = buffers.a8_block;
    op.a8_block.ld = codes_ld(rows.d);
    in.a8_block = op.a8_block;
  }
  if (wanted.a8_group) {
    op.a8_group = buffers.a8_group;
    op.a8_group.ld = codes_ld(rows.d);
    in.a8_group = op.a8_group;
  }
  if (op.normed != nullptr || wanted.a8 || wanted.a8_block || wanted.a8_group) {
    s.check(prepare_rows(s.stream, op), "norm and quantisation");
  }
  return in;
}

void plain_matmul(CudaStream& s, const MatmulInput& in, int32_t n_rows, const Matrix& weight,
                  const float* bias, float* y, int64_t ld_y, bool accumulate, float scale) {
  MatmulOp op;
  op.rows.rows.n = n_rows;
  op.in = in;
  op.n_outs = 1;
  op.outs[0] = {{weight, bias}, nullptr, y, ld_y, accumulate, scale};
  op.library = s.library_now();
  s.check(matmul(s.stream, op), "a matrix product");
}

void CudaDevice::embed(Stream& stream, const Matrix& table, const Matrix& positions,
                       const BatchRow* rows, int32_t n_rows, float multiplier, float* x) {
  CudaStream& s = own(stream);
  if (!begin_op(s)) return;
  const BatchRow* on_device = device_rows(s, rows, n_rows);
  if (!s.live()) return;
  s.check(embed_rows(s.stream, {table, positions, on_device, n_rows, multiplier, x}), "embedding");
}

void CudaDevice::cap(Stream& stream, const CapOp& op) {
  CudaStream& s = own(stream);
  if (begin_op(s)) s.check(cap_rows(s.stream, op), "soft-capping");
}

void CudaDevice::gate(Stream& stream, const GateOp& op) {
  CudaStream& s = own(stream);
  if (begin_op(s)) s.check(gate_rows(s.stream, op), "gating");
}

void CudaDevice::norm(Stream& stream, const NormOp& op) {
  CudaStream& s = own(stream);
  if (!begin_op(s)) return;
  PrepareOp rows;
  rows.rows.n = op.n_rows;
  rows.d = op.d;
  rows.x = op.x;
  rows.ld_x = op.d;
  rows.norm.one = op.norm;
  rows.normed = op.accumulate ? s.scratch.normed : op.y;
  s.check(prepare_rows(s.stream, rows), "norm");
  if (!op.accumulate || !s.live()) return;
  MergeOp add;
  add.n_rows = op.n_rows;
  add.d = op.d;
  add.sum = rows.normed;
  add.accumulate = true;
  add.scale = op.scale;
  add.y = op.y;
  s.check(merge_rows(s.stream, add), "a residual");
}

void CudaDevice::linear(Stream& stream, const LinearOp& op) {
  CudaStream& s = own(stream);
  if (!begin_op(s) || op.n_rows == 0) return;
  WantedInputs wanted;
  for (int32_t i = 0; i < op.n_outs; ++i) wanted.add(*op.outs[i].weight);
  InputRows rows;
  rows.rows.n = op.n_rows;
  rows.d = op.d_in;
  rows.x = op.x;
  rows.ld_x = op.ld_x;
  rows.norm.one = op.norm;
  rows.normed = s.scratch.normed;
  MatmulOp product;
  product.rows.rows.n = op.n_rows;
  product.library = s.library_now();
  product.in = make_input(s, rows, wanted, s.scratch.in);
  for (int32_t first = 0; first < op.n_outs; first += kMaxMatmulOuts) {
    product.n_outs = std::min(kMaxMatmulOuts, op.n_outs - first);
    for (int32_t i = 0; i < product.n_outs; ++i) {
      const LinearOut& out = op.outs[first + i];
      product.outs[i] = {{*out.weight, out.bias}, nullptr,  out.y, out.ld_y,
                         out.accumulate,          out.scale};
    }
    s.check(matmul(s.stream, product), "a matrix product");
  }
}

void CudaDevice::attention(Stream& stream, const AttentionOp& op) {
  CudaStream& s = own(stream);
  if (!begin_op(s) || op.n_rows == 0) return;
  int32_t n_sessions = 0;
  DeviceAttentionOp on_device;
  int32_t of_session = 0;
  for (int32_t r = 0; r < op.n_rows; ++r) {
    const BatchRow& row = op.rows[r];
    n_sessions = std::max(n_sessions, row.session + 1);
    of_session = r > 0 && op.rows[r - 1].session == row.session ? of_session + 1 : 1;
    on_device.max_rows_of_a_session = std::max(on_device.max_rows_of_a_session, of_session);
    on_device.max_position = std::max(on_device.max_position, row.position);
  }
  if (s.capturing != nullptr) {  // positions grow between graph launches
    for (int32_t r = 0; r < op.n_rows; ++r) {
      on_device.max_position =
          std::max(on_device.max_position, op.caches[op.rows[r].session].capacity - 1);
    }
  }
  on_device.op = op;
  on_device.op.rows = device_rows(s, op.rows, op.n_rows);
  on_device.op.caches = place_array(s, op.caches, static_cast<size_t>(n_sessions));
  on_device.partial = s.scratch.partial;
  on_device.arrived = s.scratch.arrived;
  if (!s.live()) return;
  s.check(attend(s.stream, on_device), "attention");
}

}  // namespace moe::cuda
