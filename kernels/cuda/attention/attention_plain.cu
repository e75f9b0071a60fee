// SPDX-License-Identifier: MIT
// Attention for any head_dim and any mixture of rows: a block per query. The reference for the
// faster kernels, and the fallback for other shapes.

#include "kernels/activation.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/warp.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 128;  // also the keys per step
constexpr int kWarps = kThreads / kWarp;

/// The maximum and the sum over the block's values, returned in every thread.
__device__ inline float block_max(float v) {
  MOE_CUDA_SHARED(float, of_warp, [kWarps]);
  v = warp_max(v);
  __syncthreads();
  if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) v = of_warp[w] > v ? of_warp[w] : v;
  return v;
}
__device__ inline float block_sum(float v) {
  MOE_CUDA_SHARED(float, of_warp, [kWarps]);
  for (int half = kWarp / 2; half > 0; half /= 2) v += __shfl_xor_sync(kAllLanes, v, half);
  __syncthreads();
  if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = 0;
  for (int w = 0; w < kWarps; ++w) v += of_warp[w];
  return v;
}

__device__ inline float element(KvType type, const void* p, int64_t at) {
  if (type == KvType::kF16) return half_value(static_cast<const uint16_t*>(p)[at]);
  if (type == KvType::kF32) return static_cast<const float*>(p)[at];
  return static_cast<float>(static_cast<const int8_t*>(p)[at]);
}

/// The keys that row `row` sees; without a causal mask, its session's rows, those in the window.
__device__ inline KeyRange visible_keys_of_row(const AttentionOp& op, int64_t row) {
  if (op.causal) return visible_keys(op.rows[row].position, op.window);
  const int32_t position = op.rows[row].position, side = op.window / 2;
  while (row + 1 < op.n_rows && op.rows[row + 1].session == op.rows[row].session) ++row;
  const int32_t last = op.rows[row].position;
  if (op.window == 0) return {0, last};
  return {position > side ? position - side : 0, position + side < last ? position + side : last};
}

__global__ void __launch_bounds__(kThreads) plain_kernel(AttentionOp op) {
  wait_for_previous();
  MOE_CUDA_SHARED(float, weight, [kThreads]);
  auto* sum = reinterpret_cast<float*>(dynamic_shared());  // (head_dim)
  const int thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int64_t row = blockIdx.x;
  const int d = op.head_dim;
  const int kv_head = head / (op.n_heads / op.n_kv_heads);
  const BatchRow at = op.rows[row];
  const KvCacheView cache = op.caches[at.session];
  const KvType type = cache.type;
  const int64_t first_element = head_place(cache, kv_head, d);
  const int64_t first_scale = int64_t{kv_head} * cache.capacity;
  const float* q = op.q + (row * op.n_heads + head) * d;
  for (int i = thread; i < d; i += kThreads) sum[i] = 0;
  float top = op.sinks != nullptr ? op.sinks[head] : -__builtin_inff();
  float total = op.sinks != nullptr ? 1.0f : 0.0f;
  const KeyRange visible = visible_keys_of_row(op, row);
  for (int base = visible.first; base <= visible.last; base += kThreads) {
    const int key = base + thread;
    float score = -__builtin_inff();
    if (key <= visible.last) {
      score = 0;
      for (int i = 0; i < d; ++i) {
        const int64_t place = first_element + key_place(type, d, key, i);
        score = fused(q[i], element(type, cache.layer.k, place), score);
      }
      if (type == KvType::kInt8) score = score * cache.layer.k_scale[first_scale + key];
      score = score * op.multiplier;
      if (op.cap > 0) score = soft_cap<ScalarLanes>(score, op.cap);
    }
    const float block_top = block_max(score);
    const float new_top = block_top > top ? block_top : top;
    const float correction = new_top == top ? 1.0f : exp_float(top - new_top);
    top = new_top;
    float p = key <= visible.last ? exp_float(score - top) : 0.0f;
    total = total * correction + block_sum(p);
    if (type == KvType::kInt8 && key <= visible.last)
      p = p * cache.layer.v_scale[first_scale + key];
    weight[thread] = p;
    __syncthreads();
    const int n = visible.last + 1 - base < kThreads ? visible.last + 1 - base : kThreads;
    for (int i = thread; i < d; i += kThreads) {
      float v = sum[i] * correction;
      for (int j = 0; j < n; ++j) {
        const int64_t place = first_element + value_place(d, base + j, i);
        v = fused(weight[j], element(type, cache.layer.v, place), v);
      }
      sum[i] = v;
    }
    __syncthreads();
  }
  float* out = op.out + (row * op.n_heads + head) * d;
  for (int i = thread; i < d; i += kThreads) out[i] = sum[i] / total;
}

}  // namespace

cudaError_t attend_plain(cudaStream_t stream, const AttentionOp& op) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(op.n_rows), static_cast<unsigned>(op.n_heads));
  grid.threads = kThreads;
  // Fits everywhere: src/model/config.cpp allows 1024 dimensions.
  grid.shared_bytes = sizeof(float) * static_cast<size_t>(op.head_dim);
  return launch(plain_kernel, grid, stream, op);
}

}  // namespace moe::cuda
