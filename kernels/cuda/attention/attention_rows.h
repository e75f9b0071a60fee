// SPDX-License-Identifier: MIT
#pragma once
// QK norm, clip, RoPE and rounding to the cache of one head by a warp, bit-identical to the CPU.

#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/norm.h"

namespace moe::cuda {

/// Norm, clip and rotation of one head in place, by a warp.
__device__ inline void turn_head(const AttentionOp& op, const Norm& norm, RowStats stats,
                                 int norm_at, const float* angles, float* x) {
  const bool normed = op.qk_norm != QkNorm::kNone;
  const auto value = [&](int i) {
    return clip_to(normed ? norm_value(norm, stats, x[i], norm_at + i) : x[i], op.clip);
  };
  const int dims = op.rope == RopeKind::kNone ? 0 : op.rope_dims;
  const int half = dims / 2;
  const bool interleaved = op.rope == RopeKind::kInterleaved;
  for (int j = lane_id(); j < half; j += kWarp) {
    const int at = interleaved ? 2 * j : j;
    const int other = at + (interleaved ? 1 : half);
    const float a = value(at);
    const float b = value(other);
    const float c = angles[2 * j];
    const float s = angles[2 * j + 1];
    x[at] = a * c - b * s;
    x[other] = b * c + a * s;
  }
  if (!normed && !(op.clip < __builtin_inff())) return;
  for (int i = dims + lane_id(); i < op.head_dim; i += kWarp) x[i] = value(i);
}

/// Rounds a head, clipped to +-clip, to the cache's type; place(i) is the destination of element i.
template <class Place>
__device__ inline void store_head(KvType type, const float* x, float clip, int n, void* to,
                                  float* scale, const Place& place) {
  const auto value = [&](int i) { return clip_to(x[i], clip); };
  if (type == KvType::kF16) {
    auto* halves = static_cast<uint16_t*>(to);
    for (int i = lane_id(); i < n; i += kWarp) halves[place(i)] = half_bits(value(i));
    return;
  }
  if (type == KvType::kF32) {
    auto* floats = static_cast<float*>(to);
    for (int i = lane_id(); i < n; i += kWarp) floats[place(i)] = value(i);
    return;
  }
  float amax = 0;
  for (int i = lane_id(); i < n; i += kWarp) {
    const float v = ScalarLanes::abs(value(i));
    amax = v > amax ? v : amax;
  }
  amax = warp_max(amax);
  if (!(amax > 1e-30f)) amax = 1e-30f;
  const float inverse = 127.0f / amax;
  auto* codes = static_cast<int8_t*>(to);
  for (int i = lane_id(); i < n; i += kWarp) {
    float v = value(i) * inverse;
    v = v > -127.0f ? v : -127.0f;
    v = v < 127.0f ? v : 127.0f;
    codes[place(i)] = static_cast<int8_t>(__float2int_rn(v));
  }
  if (lane_id() == 0) *scale = amax / 127.0f;
}

/// Stores a key of one KV head, normed, clipped and rotated, and an unchanged value in the cache.
__device__ inline void store_key(const KvCacheView& cache, int32_t kv_head, int32_t position,
                                 const float* k, int d) {
  const bool scaled = cache.type == KvType::kInt8;
  const int64_t scale_at = scaled ? int64_t{kv_head} * cache.capacity + position : 0;
  const int64_t element = head_place(cache, kv_head, d);
  store_head(cache.type, k, __builtin_inff(), d, cache.layer.k, cache.layer.k_scale + scale_at,
             [&](int i) { return element + key_place(cache.type, d, position, i); });
}
__device__ inline void store_value(const KvCacheView& cache, int32_t kv_head, int32_t position,
                                   const float* v, float clip, int d) {
  const bool scaled = cache.type == KvType::kInt8;
  const int64_t scale_at = scaled ? int64_t{kv_head} * cache.capacity + position : 0;
  const int64_t element = head_place(cache, kv_head, d);
  store_head(cache.type, v, clip, d, cache.layer.v, cache.layer.v_scale + scale_at,
             [&](int i) { return element + value_place(d, position, i); });
}

/// (cos, sin) of a position.
__device__ inline const float* angles_of(const AttentionOp& op, int32_t position) {
  return op.rope_table + (op.rope != RopeKind::kNone ? int64_t{position} * op.rope_dims : 0);
}

}  // namespace moe::cuda
