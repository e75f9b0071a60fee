// SPDX-License-Identifier: MIT
#pragma once
// The steps of attention, one file each; called by attention.cu.

#include "kernels/cuda/ops.h"

namespace moe::cuda {

/// QK norm and RoPE in place; rounds K and V into the caches. Bit-identical to the CPU.
cudaError_t prepare_attention(cudaStream_t stream, const AttentionOp& op);

/// One query at a time, any head_dim, with or without a causal mask: the slow reference for the
/// others.
cudaError_t attend_plain(cudaStream_t stream, const AttentionOp& op);

/// True if attend_split() supports these heads.
bool can_split(int32_t head_dim);
/// Decode: splits the keys of a row into at most `max_splits` parts, depending only on the row's
/// position, and merges the partial results in order. `partial` is unused if max_splits is 1. With
/// `prepare` it includes prepare_attention(), except that op.q and op.k are unchanged: for one row
/// per session.
cudaError_t attend_split(cudaStream_t stream, const DeviceAttentionOp& op, int32_t max_splits,
                         bool prepare);
bool can_prepare_in_split(const AttentionOp& op);
inline constexpr int32_t kMaxSplits = 64;
inline constexpr int32_t kSplitRows = 64;  // per launch; more rows take more launches

/// True if attend_prefill() supports these heads.
bool can_prefill(const AttentionOp& op);
/// Many rows of a session at once, on the tensor cores: queries and weights are rounded to halves.
cudaError_t attend_prefill(cudaStream_t stream, const AttentionOp& op);

}  // namespace moe::cuda
