// SPDX-License-Identifier: MIT
// Attention of one layer: prepares rows, then runs the kernel for their shape.

#include "kernels/cuda/attention/attention.h"

namespace moe::cuda {

int64_t attention_partial_floats(int32_t max_rows, int32_t n_heads, int32_t head_dim) {
  const int64_t rows = max_rows < kSplitRows ? max_rows : kSplitRows;
  return rows * n_heads * kMaxSplits * (head_dim + 2);
}

int64_t attention_arrived_ints(int32_t max_rows, int32_t n_heads) {
  return int64_t{max_rows < kSplitRows ? max_rows : kSplitRows} * n_heads;
}

cudaError_t attend(cudaStream_t stream, const DeviceAttentionOp& op) {
  if (op.op.n_rows <= 0) return cudaSuccess;
  if (!op.op.causal) {
    const cudaError_t error = prepare_attention(stream, op.op);
    return error != cudaSuccess ? error : attend_plain(stream, op.op);
  }
  const bool decode = op.max_rows_of_a_session == 1;
  if (decode && can_prepare_in_split(op.op)) return attend_split(stream, op, kMaxSplits, true);
  const cudaError_t error = prepare_attention(stream, op.op);
  if (error != cudaSuccess) return error;
  if (!decode && can_prefill(op.op)) return attend_prefill(stream, op.op);
  if (!can_split(op.op.head_dim)) return attend_plain(stream, op.op);
  return attend_split(stream, op, decode ? kMaxSplits : 1, false);
}

}  // namespace moe::cuda
