// SPDX-License-Identifier: MIT
// Attention of prompts: a block has 128 queries (rows, and the query heads that share a KV head)
// and processes their keys 64 at a time with m16n8k16 products of halves and float sums.
//
// Keys and values are halves in the cache, or codes, which halves represent exactly. A query
// element is split into two halves (after scaling its row by a power of two), with an error of
// 2^-22 of its magnitude and 2^-37 of the row's largest. A weight is rounded to one half: 2^-11 of
// its magnitude (with a larger exponent, so that weights down to 2^-24 of the largest are normal).
// int8: a value's scale is part of the weight, relative to the largest scale in the block.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/warp.h"

namespace moe::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kQueries = 16 * kWarps;
constexpr float kLog2e = 1.44269504089f;
constexpr float kWeightShift = 10;  // weights are 2^10 p

/// Keys of a block and its shared memory.
template <int kD>
struct Layout {
  static constexpr int kChunks = kD / 8;                     // 16-byte units of a key
  static constexpr int kValueUnits = (kChunks + 7) / 8 * 8;  // per value, padded for swizzling
  static constexpr int kKeyBytes = kKeyBlock * kChunks * 16;
  static constexpr int kValueBytes = kKeyBlock * kValueUnits * 16;
  static constexpr int kStage = kKeyBytes + kValueBytes;
  static constexpr int kQueryBytes = kWarps * kD / 16 * kWarp * 16;  // the low halves
  static constexpr int kBytes = 2 * kStage + kQueryBytes;
  /// Unit (key, chunk) of the keys is stored as in the cache; units of values are swizzled, so that
  /// eight keys' units of one chunk are in different banks.
  static __device__ int key_unit_at(int key, int chunk) {
    return (key / kKeyRun * kChunks + chunk) * kKeyRun + key % kKeyRun;
  }
  static __device__ int value_unit_at(int key, int chunk) {
    return key * kValueUnits + (chunk ^ (key & 7));
  }
};

/// Rows [begin, end) of a block that belong to one session.
struct Segment {
  int32_t begin;
  int32_t end;
  int32_t first;  // the first key that any of them sees
  int32_t last;   // the end of their keys
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;
  const float* v_scale;
};

/// A lane's two queries, rows g and g + 8 of its warp's 16.
struct Pair {
  int64_t at[2];  // offsets in q and out; -1: no query
  int32_t head[2];
  int32_t first[2];     // keys
  int32_t last[2];      // the last visible one; below first: none
  float multiplier[2];  // of the scores, including log2 e
};

/// Low halves are in shared memory, (step, lane) per warp, to save registers.
template <int kD>
struct Query {
  uint32_t high[kD / 16][4];
  uint4* low;
};

template <int kD>
struct Sums {
  float out[kD / 8][4];
  float top[2];
  float total[2];  // of the lane's own keys
};

/// The power of two that scales a number (except extremes) to [2^12, 2^13).
__device__ inline float scale_for(float largest) {
  int bits = __float_as_int(largest) & 0x7f800000;
  if (bits < 0x10000000) bits = 0x10000000;
  if (bits > 0x7e800000) bits = 0x7e800000;
  return __int_as_float(0x7f000000 - bits) * 4096.0f;
}

template <int kD>
__device__ inline void read_query(const float* q, const Pair& pair, float (&unscale)[2],
                                  Query<kD>& query) {
  const int lane_q = lane_id() % 4;
  float x[2][kD / 4];  // 4 per step: columns 2 q, 2 q + 1, 8 + 2 q, 8 + 2 q + 1
  MOE_CUDA_UNROLL
  for (int r = 0; r < 2; ++r) {
    float largest = 0;
    MOE_CUDA_UNROLL
    for (int i = 0; i < kD / 8; ++i) {
      float2 two = make_float2(0, 0);
      if (pair.at[r] >= 0) {
        two = *reinterpret_cast<const float2*>(q + pair.at[r] + 8 * i + 2 * lane_q);
      }
      x[r][2 * i] = two.x;
      x[r][2 * i + 1] = two.y;
      largest = ScalarLanes::abs(two.x) > largest ? ScalarLanes::abs(two.x) : largest;
      largest = ScalarLanes::abs(two.y) > largest ? ScalarLanes::abs(two.y) : largest;
    }
    for (int step = 1; step < 4; step *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, largest, step);
      largest = other > largest ? other : largest;
    }
    const float scale = scale_for(largest);
    unscale[r] = 1.0f / scale;
    MOE_CUDA_UNROLL
    for (int i = 0; i < kD / 4; ++i) x[r][i] = x[r][i] * scale;
  }
  MOE_CUDA_UNROLL
  for (int kk = 0; kk < kD / 16; ++kk) {
    uint32_t low[4];
    MOE_CUDA_UNROLL
    for (int part = 0; part < 4; ++part) {  // row g, row g + 8, then the columns from 8 on
      const float a = x[part % 2][4 * kk + part / 2 * 2];
      const float b = x[part % 2][4 * kk + part / 2 * 2 + 1];
      const uint32_t high = two_halves(a, b);
      query.high[kk][part] = high;
      low[part] = two_halves(a - half_value(static_cast<uint16_t>(high & 0xffff)),
                             b - half_value(static_cast<uint16_t>(high >> 16)));
    }
    query.low[kk * kWarp + lane_id()] = make_uint4(low[0], low[1], low[2], low[3]);
  }
}

/// score[n]: keys 8 n + 2 q and 8 n + 2 q + 1 with rows g and g + 8.
template <int kD>
__device__ inline void score_keys(const uint8_t* keys, const Query<kD>& query,
                                  float (&score)[kKeyBlock / 8][4]) {
  const int key = lane_id() % 8 + lane_id() / 16 * 8;
  const int chunk = lane_id() / 8 % 2;
  MOE_CUDA_UNROLL
  for (int n = 0; n < kKeyBlock / 8; ++n) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) score[n][i] = 0;
  }
  MOE_CUDA_UNROLL
  for (int kk = 0; kk < kD / 16; ++kk) {
    const uint32_t(&h)[4] = query.high[kk];
    const uint4 l = query.low[kk * kWarp + lane_id()];
    MOE_CUDA_UNROLL
    for (int n = 0; n < kKeyBlock / 8; n += 2) {
      uint32_t b[4];
      ldmatrix_x4(b, keys + 16 * Layout<kD>::key_unit_at(8 * n + key, 2 * kk + chunk));
      mma_f16(score[n], l.x, l.y, l.z, l.w, b[0], b[1]);
      mma_f16(score[n + 1], l.x, l.y, l.z, l.w, b[2], b[3]);
      mma_f16(score[n], h[0], h[1], h[2], h[3], b[0], b[1]);
      mma_f16(score[n + 1], h[0], h[1], h[2], h[3], b[2], b[3]);
    }
  }
}

/// int8: scales of the keys and (times a power of two) of the values of a step; 0 if not visible.
struct Scales {
  float k[kKeyBlock];
  float v[kKeyBlock];
};

/// cap * tanh(s / cap) for base-2 scores: cap - 2 cap / (1 + e^(2 s / cap)).
__device__ inline float cap_exponent(float s, float cap) {
  const float limit = cap * kLog2e;
  return limit - (limit + limit) / (1.0f + fast_exp2(s * (2.0f / cap)));
}

/// Converts scores to weights in place; rescales the sums so far to the new maximum.
template <KvType kType, int kD>
__device__ inline void weigh(const Scales& scales, const Pair& pair, int base, bool masked,
                             float cap, float (&score)[kKeyBlock / 8][4], Sums<kD>& sums) {
  const int lane_q = lane_id() % 4;
  float top[2] = {sums.top[0], sums.top[1]};
  MOE_CUDA_UNROLL
  for (int n = 0; n < kKeyBlock / 8; ++n) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int key = base + 8 * n + 2 * lane_q + i % 2;
      const int r = i / 2;
      float s = score[n][i] * pair.multiplier[r];
      if (kType == KvType::kInt8) s = s * scales.k[key - base];
      if (cap > 0) s = cap_exponent(s, cap);
      if (masked && (key < pair.first[r] || key > pair.last[r])) s = -__builtin_inff();
      score[n][i] = s;
      top[r] = s > top[r] ? s : top[r];
    }
  }
  float subtract[2];
  MOE_CUDA_UNROLL
  for (int r = 0; r < 2; ++r) {
    for (int step = 1; step < 4; step *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, top[r], step);
      top[r] = other > top[r] ? other : top[r];
    }
    const bool nothing = top[r] == -__builtin_inff();
    const float correction = nothing ? 1.0f : fast_exp2(sums.top[r] - top[r]);
    subtract[r] = nothing ? 0.0f : top[r] - kWeightShift;
    sums.top[r] = top[r];
    sums.total[r] = sums.total[r] * correction;
    MOE_CUDA_UNROLL
    for (int c = 0; c < kD / 8; ++c) {
      sums.out[c][2 * r] = sums.out[c][2 * r] * correction;
      sums.out[c][2 * r + 1] = sums.out[c][2 * r + 1] * correction;
    }
  }
  MOE_CUDA_UNROLL
  for (int n = 0; n < kKeyBlock / 8; ++n) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float p = fast_exp2(score[n][i] - subtract[i / 2]);
      sums.total[i / 2] = sums.total[i / 2] + p;
      score[n][i] = p;
      if (kType == KvType::kInt8) score[n][i] = p * scales.v[8 * n + 2 * lane_q + i % 2];
    }
  }
}

template <int kD>
__device__ inline void add_values(const uint8_t* values, const float (&weight)[kKeyBlock / 8][4],
                                  Sums<kD>& sums) {
  const int key = lane_id() % 16;
  const int chunk = lane_id() / 16;
  MOE_CUDA_UNROLL
  for (int kk = 0; kk < kKeyBlock / 16; ++kk) {
    const float(&x)[4] = weight[2 * kk];
    const float(&y)[4] = weight[2 * kk + 1];
    const uint32_t a0 = two_halves(x[0], x[1]);
    const uint32_t a1 = two_halves(x[2], x[3]);
    const uint32_t a2 = two_halves(y[0], y[1]);
    const uint32_t a3 = two_halves(y[2], y[3]);
    MOE_CUDA_UNROLL
    for (int c = 0; c < kD / 8; c += 2) {
      uint32_t b[4];
      ldmatrix_x4_turned(b, values + 16 * Layout<kD>::value_unit_at(16 * kk + key, c + chunk));
      mma_f16(sums.out[c], a0, a1, a2, a3, b[0], b[1]);
      mma_f16(sums.out[c + 1], a0, a1, a2, a3, b[2], b[3]);
    }
  }
}

/// Starts copying the keys and values [base, base + kKeyBlock): halves to their final place, codes
/// unchanged. Invisible positions become zeros, whatever the cache contains.
template <KvType kType, int kD>
__device__ inline void fetch(const Segment& segment, int base, uint8_t* stage) {
  using L = Layout<kD>;
  constexpr int kBytes = kType == KvType::kF16 ? 2 : 1;
  constexpr int kUnits = kD * kBytes / 16;  // per key
  uint8_t* values = stage + L::kKeyBytes;
  for (int i = static_cast<int>(threadIdx.x); i < kKeyBlock * kUnits; i += kThreads) {
    const int key = i / (kKeyRun * kUnits) * kKeyRun + i % kKeyRun;
    const bool visible = base + key >= segment.first && base + key < segment.last;
    cp_async_16(stage + 16 * i, segment.k + (int64_t{base} * kUnits + i) * 16, visible);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kKeyBlock * kUnits; i += kThreads) {
    const int key = i / kUnits;
    const bool visible = base + key >= segment.first && base + key < segment.last;
    const int to = kType == KvType::kF16 ? L::value_unit_at(key, i % kUnits) : i;
    cp_async_16(values + 16 * to, segment.v + (int64_t{base} * kUnits + i) * 16, visible);
  }
  cp_async_commit();
}

__device__ inline uint32_t code_halves(uint32_t word, int at) {
  return two_halves(static_cast<float>(static_cast<int8_t>(word >> (8 * at))),
                    static_cast<float>(static_cast<int8_t>(word >> (8 * at + 8))));
}
__device__ inline uint4 code_unit(uint32_t low, uint32_t high) {
  return make_uint4(code_halves(low, 0), code_halves(low, 2), code_halves(high, 0),
                    code_halves(high, 2));
}

/// Converts codes from fetch() in `from` to halves in `to`, and loads the scales.
template <int kD>
__device__ inline void unpack_codes(const Segment& segment, int base, float v_factor,
                                    const uint8_t* from, uint8_t* to, Scales& scales) {
  using L = Layout<kD>;
  if (threadIdx.x < kKeyBlock) {
    const int key = base + static_cast<int>(threadIdx.x);
    const bool visible = key >= segment.first && key < segment.last;
    scales.k[threadIdx.x] = visible ? segment.k_scale[key] : 0.0f;
    scales.v[threadIdx.x] = visible ? segment.v_scale[key] * v_factor : 0.0f;
  }
  constexpr int kUnits = kD / 16;
  const auto* keys = reinterpret_cast<const uint4*>(from);
  const auto* values = reinterpret_cast<const uint4*>(from + L::kKeyBytes);
  auto* to_keys = reinterpret_cast<uint4*>(to);
  auto* to_values = reinterpret_cast<uint4*>(to + L::kKeyBytes);
  for (int i = static_cast<int>(threadIdx.x); i < kKeyBlock * kUnits; i += kThreads) {
    const int key = i / (kKeyRun * kUnits) * kKeyRun + i % kKeyRun;
    const int unit = i / kKeyRun % kUnits;
    const uint4 k = keys[i];
    to_keys[L::key_unit_at(key, 2 * unit)] = code_unit(k.x, k.y);
    to_keys[L::key_unit_at(key, 2 * unit + 1)] = code_unit(k.z, k.w);
    const uint4 v = values[i];
    to_values[L::value_unit_at(i / kUnits, 2 * (i % kUnits))] = code_unit(v.x, v.y);
    to_values[L::value_unit_at(i / kUnits, 2 * (i % kUnits) + 1)] = code_unit(v.z, v.w);
  }
}

/// A power of two that scales the largest value scale to [1, 2). All threads.
__device__ inline float value_factor(const Segment& segment) {
  MOE_CUDA_SHARED(float, of_warp, [kWarps]);
  float largest = 0;
  for (int key = segment.first + static_cast<int>(threadIdx.x); key < segment.last;
       key += kThreads) {
    const float v = segment.v_scale[key];
    largest = v > largest ? v : largest;
  }
  largest = warp_max(largest);
  __syncthreads();
  if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) largest = of_warp[w] > largest ? of_warp[w] : largest;
  return scale_for(largest) / 4096.0f;
}

/// Sums over a segment's keys, and the results of its queries.
template <KvType kType, int kD>
__device__ inline void run_segment(const AttentionOp& op, const Segment& segment, const Pair& pair,
                                   const Query<kD>& query, Scales& scales) {
  using L = Layout<kD>;
  uint8_t* memory = dynamic_shared();
  const float v_factor = kType == KvType::kInt8 ? value_factor(segment) : 1.0f;
  Sums<kD> sums;
  MOE_CUDA_UNROLL
  for (int c = 0; c < kD / 8; ++c) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < 4; ++i) sums.out[c][i] = 0;
  }
  MOE_CUDA_UNROLL
  for (int r = 0; r < 2; ++r) {
    sums.top[r] = -__builtin_inff();
    sums.total[r] = 0;
  }
  const int begin = segment.first / kKeyBlock * kKeyBlock;
  __syncthreads();  // the previous segment no longer uses the memory
  fetch<kType, kD>(segment, begin, memory);
  int stage = 0;
  for (int base = begin; base < segment.last; base += kKeyBlock) {
    cp_async_wait<0>();
    __syncthreads();
    const uint8_t* here = memory + stage * L::kStage;
    if (kType == KvType::kF16) {
      stage ^= 1;
    } else {
      unpack_codes<kD>(segment, base, v_factor, memory, memory + L::kStage, scales);
      here = memory + L::kStage;
      __syncthreads();
    }
    if (base + kKeyBlock < segment.last) {
      fetch<kType, kD>(segment, base + kKeyBlock, memory + stage * L::kStage);
    }
    bool wanted = false;
    bool masked = false;
    MOE_CUDA_UNROLL
    for (int r = 0; r < 2; ++r) {
      wanted = wanted || (pair.first[r] < base + kKeyBlock && pair.last[r] >= base);
      masked = masked || pair.first[r] > base || pair.last[r] < base + kKeyBlock - 1;
    }
    if (__any_sync(kAllLanes, wanted ? 1 : 0)) {
      float score[kKeyBlock / 8][4];
      score_keys<kD>(here, query, score);
      weigh<kType, kD>(scales, pair, base, __any_sync(kAllLanes, masked ? 1 : 0) != 0, op.cap,
                       score, sums);
      add_values<kD>(here + L::kKeyBytes, score, sums);
    }
  }
  MOE_CUDA_UNROLL
  for (int r = 0; r < 2; ++r) {
    float total = sums.total[r];
    for (int step = 1; step < 4; step *= 2) total += __shfl_xor_sync(kAllLanes, total, step);
    if (pair.last[r] < pair.first[r]) continue;
    float scale = 1;
    if (op.sinks != nullptr) {
      const float sink = op.sinks[pair.head[r]] * kLog2e;
      const float highest = sink > sums.top[r] ? sink : sums.top[r];
      scale = fast_exp2(sums.top[r] - highest);
      total = total * scale + fast_exp2(sink - highest + kWeightShift);
    }
    scale = scale / (total * v_factor);
    MOE_CUDA_UNROLL
    for (int c = 0; c < kD / 8; ++c) {
      *reinterpret_cast<float2*>(op.out + pair.at[r] + 8 * c + 2 * (lane_id() % 4)) =
          make_float2(sums.out[c][2 * r] * scale, sums.out[c][2 * r + 1] * scale);
    }
  }
}

template <int kD>
__global__ void __launch_bounds__(kThreads, 1) prefill_kernel(AttentionOp op, int32_t tile_rows) {
  wait_for_previous();
  MOE_CUDA_SHARED(Scales, scales);
  const int group = op.n_heads / op.n_kv_heads;
  const int kv_head = static_cast<int>(blockIdx.y);
  // The last rows have the most keys: start with them.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int row_begin = tile * tile_rows;
  const int row_end = row_begin + tile_rows < op.n_rows ? row_begin + tile_rows : op.n_rows;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  Pair pair;
  int row_of[2];
  MOE_CUDA_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int entry = 16 * warp + lane_id() / 4 + 8 * r;
    const int row = row_begin + entry / group;
    const bool there = row < row_end;
    row_of[r] = there ? row : -1;
    pair.head[r] = kv_head * group + entry % group;
    pair.at[r] = there ? (int64_t{row} * op.n_heads + pair.head[r]) * kD : -1;
  }
  Query<kD> query;
  query.low = reinterpret_cast<uint4*>(dynamic_shared() + 2 * Layout<kD>::kStage) +
              warp * (kD / 16 * kWarp);
  float unscale[2];
  read_query<kD>(op.q, pair, unscale, query);
  MOE_CUDA_UNROLL
  for (int r = 0; r < 2; ++r) pair.multiplier[r] = op.multiplier * kLog2e * unscale[r];

  Segment segment;
  for (segment.begin = row_begin; segment.begin < row_end; segment.begin = segment.end) {
    const BatchRow lead = op.rows[segment.begin];
    segment.end = segment.begin + 1;
    while (segment.end < row_end && op.rows[segment.end].session == lead.session) ++segment.end;
    segment.first = visible_keys(lead.position, op.window).first;
    segment.last = op.rows[segment.end - 1].position + 1;
    MOE_CUDA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const bool mine = row_of[r] >= segment.begin && row_of[r] < segment.end;
      const KeyRange visible = visible_keys(mine ? op.rows[row_of[r]].position : 0, op.window);
      pair.first[r] = visible.first;
      pair.last[r] = mine ? visible.last : -1;
    }
    const KvCacheView cache = op.caches[lead.session];
    const bool f16 = cache.type == KvType::kF16;
    const int64_t element = head_place(cache, kv_head, kD) * (f16 ? 2 : 1);
    const int64_t scale = int64_t{kv_head} * cache.capacity;
    segment.k = static_cast<const uint8_t*>(cache.layer.k) + element;
    segment.v = static_cast<const uint8_t*>(cache.layer.v) + element;
    segment.k_scale = f16 ? nullptr : cache.layer.k_scale + scale;
    segment.v_scale = f16 ? nullptr : cache.layer.v_scale + scale;
    if (f16) {
      run_segment<KvType::kF16, kD>(op, segment, pair, query, scales);
    } else {
      run_segment<KvType::kInt8, kD>(op, segment, pair, query, scales);
    }
  }
}

template <int kD>
cudaError_t launch_prefill(cudaStream_t stream, const AttentionOp& op) {
  const int32_t group = op.n_heads / op.n_kv_heads;
  const int32_t tile_rows = kQueries / group;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((op.n_rows + tile_rows - 1) / tile_rows),
                     static_cast<unsigned>(op.n_kv_heads));
  grid.threads = kThreads;
  grid.shared_bytes = Layout<kD>::kBytes;
  return launch(prefill_kernel<kD>, grid, stream, op, tile_rows);
}

// The kernel for a head_dim; null: none.
using Launch = cudaError_t (*)(cudaStream_t, const AttentionOp&);
Launch launch_for(int32_t head_dim) {
  switch (head_dim) {
    case 32:
      return launch_prefill<32>;
    case 64:
      return launch_prefill<64>;
    case 96:
      return launch_prefill<96>;
    case 128:
      return launch_prefill<128>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_prefill(const AttentionOp& op) {
  return launch_for(op.head_dim) != nullptr && op.n_heads / op.n_kv_heads <= kQueries;
}

cudaError_t attend_prefill(cudaStream_t stream, const AttentionOp& op) {
  return launch_for(op.head_dim)(stream, op);
}

}  // namespace moe::cuda
