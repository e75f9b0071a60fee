// SPDX-License-Identifier: MIT
#pragma once
// Operations of a block of attention_split.cu on its keys: scores, weights, values.

#include "kernels/activation.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/warp.h"

namespace moe::cuda::attention_part {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kBatch = kThreads;  // keys
inline constexpr int kDims = 8;          // per thread

template <KvType kType>
struct Cached;
template <>
struct Cached<KvType::kF16> {
  static constexpr int kUnit = 8;
  static constexpr int kBytes = 2;
  /// 8 elements of 16 bytes.
  static __device__ void unpack(const uint32_t* words, float* out) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = half_value(static_cast<uint16_t>(words[i] & 0xffff));
      out[2 * i + 1] = half_value(static_cast<uint16_t>(words[i] >> 16));
    }
  }
  static __device__ void read_values(const void* p, float (&out)[kDims]) {
    const uint4 v = *static_cast<const uint4*>(p);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    unpack(words, out);
  }
};
template <>
struct Cached<KvType::kInt8> {
  static constexpr int kUnit = 16;
  static constexpr int kBytes = 1;
  static __device__ void unpack_word(uint32_t word, float* out) {
    const uint32_t biased = word ^ 0x80808080u;
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {  // 2^23 + the biased byte, exactly
      const uint32_t bits = __byte_perm(biased, 0x4b000000u, 0x7440u + static_cast<uint32_t>(i));
      out[i] = __uint_as_float(bits) - 8388736.0f;
    }
  }
  static __device__ void unpack(const uint32_t* words, float* out) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) unpack_word(words[i], out + 4 * i);
  }
  static __device__ void read_values(const void* p, float (&out)[kDims]) {
    const uint2 v = *static_cast<const uint2*>(p);
    unpack_word(v.x, out);
    unpack_word(v.y, out + 4);
  }
};

/// The work of a block: heads [head, head + n_heads) of a row, all of one KV head.
struct Part {
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;
  const float* v_scale;
  int32_t begin;  // first key, a multiple of 64
  int32_t first;  // first visible key
  int32_t last;   // end of the visible keys
};

/// acc[g] = q[g] . key, over ascending dimensions. q: (kHeads, head_dim) in shared memory.
template <KvType kType, int kHeads>
__device__ inline void score_key(const uint8_t* key, const float* q, int d, float (&acc)[kHeads]) {
  using C = Cached<kType>;
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) acc[g] = 0;
  MOE_CUDA_UNROLL_4
  for (int c = 0; c < d; c += C::kUnit) {
    const uint4 raw = *reinterpret_cast<const uint4*>(key + c * kKeyRun * C::kBytes);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    float k[C::kUnit];
    C::unpack(words, k);
    MOE_CUDA_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      MOE_CUDA_UNROLL
      for (int i = 0; i < C::kUnit; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(q + g * d + c + i);
        acc[g] = fused(four.x, k[i], acc[g]);
        acc[g] = fused(four.y, k[i + 1], acc[g]);
        acc[g] = fused(four.z, k[i + 2], acc[g]);
        acc[g] = fused(four.w, k[i + 3], acc[g]);
      }
    }
  }
}

/// Softmax state of a part. Equal in every thread, except for the sums of a thread's own keys.
template <int kHeads>
struct Softmax {
  float top[kHeads];
  float own[kHeads];  // sum of exp(score - top)
};

/// Each array begins at 16 bytes, so that nvcc's wide loads of one read nothing of another.
template <int kHeads>
struct Memory {
  alignas(16) float weight[kBatch][kHeads];
  alignas(16) float of_warp[kWarps][kHeads];
  alignas(16) float total[kHeads];
};

/// Writes the weights of a batch of keys to shared memory; correction[g] rescales earlier sums.
template <KvType kType, int kHeads>
__device__ inline void weigh_batch(const Part& part, int base, const float* q, int d,
                                   float multiplier, float cap, Softmax<kHeads>& s,
                                   float (&correction)[kHeads], Memory<kHeads>& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int key = base + thread;
  const bool visible = key >= part.first && key < part.last;
  float score[kHeads];
  if (visible) {
    const int64_t place = key_place(kType, d, key, 0) * Cached<kType>::kBytes;
    score_key<kType, kHeads>(part.k + place, q, d, score);
  }
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    if (kType == KvType::kInt8 && visible) score[g] = score[g] * part.k_scale[key];
    score[g] = visible ? score[g] * multiplier : -__builtin_inff();
    if (visible && cap > 0) score[g] = soft_cap<ScalarLanes>(score[g], cap);
    const float top = warp_max(score[g]);
    if (lane_id() == 0) memory.of_warp[thread / kWarp][g] = top;
  }
  __syncthreads();
  const float v_scale = kType == KvType::kInt8 && visible ? part.v_scale[key] : 1.0f;
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    float top = s.top[g];
    MOE_CUDA_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      top = memory.of_warp[w][g] > top ? memory.of_warp[w][g] : top;
    }
    correction[g] = top == s.top[g] ? 1.0f : exp_float(s.top[g] - top);
    const float p = visible ? exp_float(score[g] - top) : 0.0f;
    s.top[g] = top;
    s.own[g] = s.own[g] * correction[g] + p;
    memory.weight[thread][g] = p * v_scale;
  }
  __syncthreads();
}

/// sum[g] += weight[g] * value over every n_subs-th visible key of a batch.
template <KvType kType, int kHeads>
__device__ inline void add_values(const Part& part, int base, int sub, int n_subs, int dim, int d,
                                  const Memory<kHeads>& memory, float (&sum)[kHeads][kDims]) {
  const int from = part.first > base ? part.first - base : 0;
  const int to = part.last - base < kBatch ? part.last - base : kBatch;
  MOE_CUDA_UNROLL_4
  for (int j = from + sub; j < to; j += n_subs) {
    float v[kDims];
    const int64_t place = value_place(d, base + j, dim) * Cached<kType>::kBytes;
    Cached<kType>::read_values(part.v + place, v);
    MOE_CUDA_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      const float w = memory.weight[j][g];
      MOE_CUDA_UNROLL
      for (int i = 0; i < kDims; ++i) sum[g][i] = fused(w, v[i], sum[g][i]);
    }
  }
}

/// Totals of all threads into memory.total.
template <int kHeads>
__device__ inline void add_totals(const Softmax<kHeads>& s, Memory<kHeads>& memory) {
  __syncthreads();
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    float v = s.own[g];
    for (int half = kWarp / 2; half > 0; half /= 2) v += __shfl_xor_sync(kAllLanes, v, half);
    if (lane_id() == 0) memory.of_warp[threadIdx.x / kWarp][g] = v;
  }
  __syncthreads();
  if (threadIdx.x < kHeads) {
    float v = 0;
    for (int w = 0; w < kWarps; ++w) v += memory.of_warp[w][threadIdx.x];
    memory.total[threadIdx.x] = v;
  }
}

}  // namespace moe::cuda::attention_part
