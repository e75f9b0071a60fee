#pragma once
// The steps of attention, one file each; attention.cu puts them together.

#include "kernels/cuda/ops.h"

namespace moe::cuda {

/// QK norm and RoPE in place; K and V rounded into the caches. Bits as on the CPU.
cudaError_t prepare_attention(cudaStream_t stream, const AttentionOp& op);

/// One query at a time, any head_dim: the definition of the others, and slow.
cudaError_t attend_plain(cudaStream_t stream, const AttentionOp& op);

/// True where attend_split() can serve these heads.
bool can_split(int32_t head_dim);
/// Decode: the keys of a row are cut into at most `max_splits` parts, by the row's position alone,
/// and what the parts gave is merged in order. `partial` is not used where max_splits is 1.
cudaError_t attend_split(cudaStream_t stream, const DeviceAttentionOp& op, int32_t max_splits);
inline constexpr int32_t kMaxSplits = 64;

/// True where attend_prefill() can serve these heads.
bool can_prefill(const AttentionOp& op);
/// Many rows of a session at once, on the matrix units: queries and weights are rounded to halves.
cudaError_t attend_prefill(cudaStream_t stream, const AttentionOp& op);

}  // namespace moe::cuda
