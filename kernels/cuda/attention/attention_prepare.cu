// SPDX-License-Identifier: MIT
// QK norm, clip, RoPE, and rounding of keys and values into the cache, bit-identical to the CPU. A
// block per row; a warp per head.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_rows.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kMaxHeld = 24 * 1024;  // floats of shared memory for norms over whole rows

__global__ void __launch_bounds__(kThreads) prepare_kernel(AttentionOp op, bool held) {
  wait_for_previous();
  MOE_CUDA_SHARED(RowStats, whole, [2]);
  const int64_t row = blockIdx.x;
  const int d = op.head_dim;
  const int n_q = op.n_heads * d;
  const int n_k = op.n_kv_heads * d;
  float* q = op.q + row * n_q;
  float* k = op.k + row * n_k;
  const float* v = op.v + row * n_k;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (op.qk_norm == QkNorm::kWhole) {
    const float* from_q = q;
    const float* from_k = k;
    if (held) {
      auto* memory = reinterpret_cast<float*>(dynamic_shared());
      for (int i = static_cast<int>(threadIdx.x); i < n_q + n_k; i += kThreads) {
        memory[i] = i < n_q ? q[i] : k[i - n_q];
      }
      from_q = memory;
      from_k = memory + n_q;
      __syncthreads();
    }
    if (warp < 2) {
      const Norm& norm = warp == 0 ? op.q_norm : op.k_norm;
      const RowStats stats =
          row_stats(norm.kind, norm.eps, warp == 0 ? from_q : from_k, warp == 0 ? n_q : n_k);
      if (lane_id() == 0) whole[warp] = stats;
    }
    __syncthreads();
  }
  const BatchRow at = op.rows[row];
  const float* angles = angles_of(op, at.position);
  const KvCacheView cache = op.caches[at.session];
  const int heads = op.n_heads + 2 * op.n_kv_heads;
  for (int task = warp; task < heads; task += kWarps) {
    const bool is_q = task < op.n_heads;
    const bool is_k = !is_q && task < op.n_heads + op.n_kv_heads;
    const int head = is_q ? task : is_k ? task - op.n_heads : task - op.n_heads - op.n_kv_heads;
    if (is_q || is_k) {
      float* x = (is_q ? q : k) + head * d;
      const Norm& norm = is_q ? op.q_norm : op.k_norm;
      RowStats stats = {0, 1};
      if (op.qk_norm == QkNorm::kHead) stats = row_stats(norm.kind, norm.eps, x, d);
      if (op.qk_norm == QkNorm::kWhole) stats = whole[is_q ? 0 : 1];
      __syncwarp();
      turn_head(op, norm, stats, op.qk_norm == QkNorm::kWhole ? head * d : 0, angles, x);
      __syncwarp();
      if (is_q) continue;
      store_key(cache, head, at.position, x, d);
    } else {
      store_value(cache, head, at.position, v + head * d, op.clip, d);
    }
  }
}

}  // namespace

cudaError_t prepare_attention(cudaStream_t stream, const AttentionOp& op) {
  if (op.n_rows <= 0) return cudaSuccess;
  const int64_t floats = int64_t{op.n_heads + op.n_kv_heads} * op.head_dim;
  const bool held = op.qk_norm == QkNorm::kWhole && floats <= kMaxHeld;
  Grid grid;
  grid.blocks = static_cast<unsigned>(op.n_rows);
  grid.threads = kThreads;
  grid.shared_bytes = held ? static_cast<size_t>(floats) * sizeof(float) : 0;
  return launch(prepare_kernel, grid, stream, op, held);
}

}  // namespace moe::cuda
