// QK norm, RoPE, and rounding of keys and values into the cache, with the CPU's bits. A block per
// row; a warp per head.

#include "kernels/cuda/attention.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/norm.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int64_t kMaxHeld = 24 * 1024;  // floats of shared memory for norms over whole rows

/// Norm and rotation of one head in place, by a warp.
__device__ inline void turn_head(const AttentionOp& op, const Norm& norm, RowStats stats,
                                 int norm_at, const float* angles, float* x) {
  const bool normed = op.qk_norm != QkNorm::kNone;
  const int dims = op.rope == RopeKind::kNone ? 0 : op.rope_dims;
  const int half = dims / 2;
  const bool interleaved = op.rope == RopeKind::kInterleaved;
  for (int j = lane_id(); j < half; j += kWarp) {
    const int at = interleaved ? 2 * j : j;
    const int other = at + (interleaved ? 1 : half);
    float a = x[at];
    float b = x[other];
    if (normed) {
      a = norm_value(norm, stats, a, norm_at + at);
      b = norm_value(norm, stats, b, norm_at + other);
    }
    const float c = angles[2 * j];
    const float s = angles[2 * j + 1];
    x[at] = a * c - b * s;
    x[other] = b * c + a * s;
  }
  if (!normed) return;
  for (int i = dims + lane_id(); i < op.head_dim; i += kWarp) {
    x[i] = norm_value(norm, stats, x[i], norm_at + i);
  }
}

/// A head as the cache holds it; place(i) is where element i goes.
template <class Place>
__device__ inline void store_head(KvType type, const float* x, int n, void* to, float* scale,
                                  const Place& place) {
  if (type == KvType::kF16) {
    auto* halves = static_cast<uint16_t*>(to);
    for (int i = lane_id(); i < n; i += kWarp) halves[place(i)] = half_bits(x[i]);
    return;
  }
  float amax = 0;
  for (int i = lane_id(); i < n; i += kWarp) {
    const float v = ScalarLanes::abs(x[i]);
    amax = v > amax ? v : amax;
  }
  amax = warp_max(amax);
  if (!(amax > 1e-30f)) amax = 1e-30f;
  const float inverse = 127.0f / amax;
  auto* codes = static_cast<int8_t*>(to);
  for (int i = lane_id(); i < n; i += kWarp) {
    float v = x[i] * inverse;
    v = v > -127.0f ? v : -127.0f;
    v = v < 127.0f ? v : 127.0f;
    codes[place(i)] = static_cast<int8_t>(__float2int_rn(v));
  }
  if (lane_id() == 0) *scale = amax / 127.0f;
}

__global__ void __launch_bounds__(kThreads) prepare_kernel(AttentionOp op, bool held) {
  __shared__ RowStats whole[2];
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
  const bool rotated = op.rope != RopeKind::kNone;
  const float* angles = op.rope_table + (rotated ? int64_t{at.position} * op.rope_dims : 0);
  const KvCacheView cache = op.caches[at.session];
  const int heads = op.n_heads + 2 * op.n_kv_heads;
  for (int task = warp; task < heads; task += kWarps) {
    const bool is_q = task < op.n_heads;
    const bool is_k = !is_q && task < op.n_heads + op.n_kv_heads;
    const int head = is_q ? task : is_k ? task - op.n_heads : task - op.n_heads - op.n_kv_heads;
    const bool scaled = cache.type == KvType::kInt8;
    const int64_t scale_at = scaled ? int64_t{head} * cache.capacity + at.position : 0;
    const int64_t element = head_place(cache, head, d);
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
      store_head(cache.type, x, d, cache.layer.k, cache.layer.k_scale + scale_at,
                 [&](int i) { return element + key_place(cache.type, d, at.position, i); });
    } else {
      store_head(cache.type, v + head * d, d, cache.layer.v, cache.layer.v_scale + scale_at,
                 [&](int i) { return element + value_place(d, at.position, i); });
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
