#pragma once
// The steps of attention, one file each; attention.cu puts them together.

#include "kernels/cuda/ops.h"

namespace moe::cuda {

/// QK norm and RoPE in place; K and V rounded into the caches. Bits as on the CPU.
cudaError_t prepare_attention(cudaStream_t stream, const AttentionOp& op);

/// One query at a time, any head_dim, with or without a causal mask: the definition of the others,
/// and slow.
cudaError_t attend_plain(cudaStream_t stream, const AttentionOp& op);

/// True where attend_split() can serve these heads.
bool can_split(int32_t head_dim);
/// Decode: the keys of a row are cut into at most `max_splits` parts, by the row's position alone,
/// and what the parts gave is merged in order. `partial` is not used where max_splits is 1. With
/// `prepare` it does what prepare_attention() does too, but for op.q and op.k, which stay as they
/// are: for one row of each session.
cudaError_t attend_split(cudaStream_t stream, const DeviceAttentionOp& op, int32_t max_splits,
                         bool prepare);
bool can_prepare_in_split(const AttentionOp& op);
inline constexpr int32_t kMaxSplits = 64;
inline constexpr int32_t kSplitRows = 64;  // of one launch; more rows take more launches

/// True where attend_prefill() can serve these heads.
bool can_prefill(const AttentionOp& op);
/// Many rows of a session at once, on the matrix units: queries and weights are rounded to halves.
cudaError_t attend_prefill(cudaStream_t stream, const AttentionOp& op);

}  // namespace moe::cuda
