// Attention of single queries over long caches: the keys of a query are cut into parts, a block per
// part and KV head, and what the parts gave is merged in order.
//
// A block goes over its keys 128 at a time. First a thread has a key: it multiplies the whole key
// with the query heads that share it, as one chain over ascending dimensions, so that scores have
// the CPU's bits. Then a thread has 8 dimensions, and every n-th key of the values. Queries and
// weights stay floats. How keys are cut depends on the position of the query (and the window) only:
// not on the capacity, the grid or the other rows.
//
// A block norms and turns its own queries; the one that has a row's own position caches its key and
// value before it reads them. The last block to be done with a query merges its parts.

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_rows.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBatch = kThreads;  // keys
constexpr int kDims = 8;          // of a thread
constexpr int kKeyBlock = 64;
constexpr int kMaxDim = kWarp * kDims;
constexpr int64_t kMaxStaged = 12 * 1024;  // floats

struct Plan {
  int32_t first_block;
  int32_t n_blocks;
  int32_t per_split;
  int32_t n_splits;
};
__device__ inline Plan plan_of(const Seen& seen, int32_t max_splits) {
  Plan p;
  p.first_block = seen.first / kKeyBlock;
  p.n_blocks = seen.last / kKeyBlock + 1 - p.first_block;
  p.per_split = (p.n_blocks + max_splits - 1) / max_splits;
  p.n_splits = (p.n_blocks + p.per_split - 1) / p.per_split;
  return p;
}

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

/// What a block works on: heads [head, head + n_heads) of a row, all of one KV head.
struct Part {
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;
  const float* v_scale;
  int32_t begin;  // keys, from a multiple of 64 on
  int32_t first;  // of them the ones that are seen
  int32_t last;   // its end
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

/// Softmax of a part so far. The same in every thread, but for the sums of a thread's own keys.
template <int kHeads>
struct Softmax {
  float top[kHeads];
  float own[kHeads];  // sum of exp(score - top)
};

/// Stats of norms over a whole row come from all of it: (n_heads or n_kv_heads, d) floats of x by
/// one warp, staged in `memory` by all threads.
__device__ inline RowStats whole_stats(const Norm& norm, const float* x, int n, float* memory,
                                       RowStats* shared) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) memory[i] = x[i];
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const RowStats stats = row_stats(norm.kind, norm.eps, memory, n);
    if (threadIdx.x == 0) *shared = stats;
  }
  __syncthreads();
  return *shared;
}

/// The row's heads [head, head + n) into q, normed and turned; `memory`: what whole_stats() wants.
__device__ inline void read_queries(const AttentionOp& op, int64_t row, int32_t position, int head,
                                    int n, int n_padded, float* q, float* memory) {
  __shared__ RowStats shared;
  const int d = op.head_dim;
  const float* from = op.q + row * op.n_heads * d;
  RowStats stats = {0, 1};
  if (op.qk_norm == QkNorm::kWhole) {
    stats = whole_stats(op.q_norm, from, op.n_heads * d, memory, &shared);
  }
  const float* angles = angles_of(op, position);
  for (int g = static_cast<int>(threadIdx.x) / kWarp; g < n_padded; g += kWarps) {
    float* to = q + g * d;
    for (int i = lane_id(); i < d; i += kWarp) to[i] = g < n ? from[(head + g) * d + i] : 0.0f;
    __syncwarp();
    if (g >= n) continue;
    if (op.qk_norm == QkNorm::kHead) stats = row_stats(op.q_norm.kind, op.q_norm.eps, to, d);
    turn_head(op, op.q_norm, stats, op.qk_norm == QkNorm::kWhole ? (head + g) * d : 0, angles, to);
  }
  __syncthreads();
}

/// Caches the row's key and value of one KV head. `memory`: n_kv_heads d floats.
__device__ inline void cache_row(const AttentionOp& op, int64_t row, int32_t position,
                                 const KvCacheView& cache, int kv_head, float* memory) {
  __shared__ RowStats shared;
  const int d = op.head_dim;
  const float* from = op.k + row * op.n_kv_heads * d;
  RowStats stats = {0, 1};
  if (op.qk_norm == QkNorm::kWhole) {
    stats = whole_stats(op.k_norm, from, op.n_kv_heads * d, memory, &shared);
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp == 0) {
    float* k = memory + kv_head * d;
    for (int i = lane_id(); i < d; i += kWarp) k[i] = from[kv_head * d + i];
    __syncwarp();
    if (op.qk_norm == QkNorm::kHead) stats = row_stats(op.k_norm.kind, op.k_norm.eps, k, d);
    turn_head(op, op.k_norm, stats, op.qk_norm == QkNorm::kWhole ? kv_head * d : 0,
              angles_of(op, position), k);
    __syncwarp();
    store_key(cache, kv_head, position, k, d);
  }
  if (warp == 1) {
    store_value(cache, kv_head, position, op.v + (row * op.n_kv_heads + kv_head) * d, d);
  }
  __syncthreads();
}

template <int kHeads>
struct Memory {
  float weight[kBatch][kHeads];
  float of_warp[kWarps][kHeads];
  float total[kHeads];
};

/// Weights of a batch of keys into shared memory; correction[g] is what earlier sums are worth now.
template <KvType kType, int kHeads>
__device__ inline void weigh_batch(const Part& part, int base, const float* q, int d,
                                   float multiplier, Softmax<kHeads>& s,
                                   float (&correction)[kHeads], Memory<kHeads>& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int key = base + thread;
  const bool seen = key >= part.first && key < part.last;
  float score[kHeads];
  if (seen) {
    const int64_t place = key_place(kType, d, key, 0) * Cached<kType>::kBytes;
    score_key<kType, kHeads>(part.k + place, q, d, score);
  }
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    if (kType == KvType::kInt8 && seen) score[g] = score[g] * part.k_scale[key];
    score[g] = seen ? score[g] * multiplier : -__builtin_inff();
    const float top = warp_max(score[g]);
    if (lane_id() == 0) memory.of_warp[thread / kWarp][g] = top;
  }
  __syncthreads();
  const float v_scale = kType == KvType::kInt8 && seen ? part.v_scale[key] : 1.0f;
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    float top = s.top[g];
    MOE_CUDA_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      top = memory.of_warp[w][g] > top ? memory.of_warp[w][g] : top;
    }
    correction[g] = top == s.top[g] ? 1.0f : exp_float(s.top[g] - top);
    const float p = seen ? exp_float(score[g] - top) : 0.0f;
    s.top[g] = top;
    s.own[g] = s.own[g] * correction[g] + p;
    memory.weight[thread][g] = p * v_scale;
  }
  __syncthreads();
}

/// sum[g] += weight[g] * value over every n_subs-th seen key of a batch.
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

/// A sum of values with its softmax, the sink added: the answer is sum * scale / total.
struct Ending {
  float scale;
  float total;
};
__device__ inline Ending end_softmax(float top, float total, const float* sinks, int head) {
  if (sinks == nullptr) return {1, total};
  const float sink = sinks[head];
  const float highest = sink > top ? sink : top;
  const float scale = exp_float(top - highest);
  return {scale, total * scale + exp_float(sink - highest)};
}

struct SplitOp {
  DeviceAttentionOp op;
  int32_t max_splits;
  int32_t first_row;  // rows from here on; the partial memory begins with it
  bool prepare;       // queries, keys and values are as they came
  int32_t whole;      // floats that norms over whole rows are staged in
};

/// Where a part's sum, its top and its total go.
__device__ inline float* partial_at(const SplitOp& s, int64_t row, int head, int split) {
  const int64_t query = (row - s.first_row) * s.op.op.n_heads + head;
  return s.op.partial + (query * s.max_splits + split) * (s.op.op.head_dim + 2);
}

/// The heads of one KV head that a block has.
struct Heads {
  int64_t row;
  int first;
  int n;
};

/// A part's sums to where they go: the answer itself where there is only one part.
template <int kHeads>
__device__ inline void write_part(const SplitOp& split, const Heads& heads, const Plan& plan,
                                  const float* sums, int n_subs, const Softmax<kHeads>& s,
                                  const Memory<kHeads>& memory) {
  const AttentionOp& op = split.op.op;
  const int d = op.head_dim;
  const int thread = static_cast<int>(threadIdx.x);
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    if (g >= heads.n) continue;
    const int head = heads.first + g;
    const float total = memory.total[g];
    const Ending ending = end_softmax(s.top[g], total, op.sinks, head);
    float* to = partial_at(split, heads.row, head, static_cast<int>(blockIdx.x));
    for (int i = thread; i < d; i += kThreads) {
      float v = 0;
      for (int other = 0; other < n_subs; ++other) v = v + sums[(other * kHeads + g) * d + i];
      if (plan.n_splits == 1) {
        op.out[(heads.row * op.n_heads + head) * d + i] = v * ending.scale / ending.total;
      } else {
        to[i] = v;
      }
    }
    if (thread == 0 && plan.n_splits > 1) {
      to[d] = s.top[g];
      to[d + 1] = total;
    }
  }
}

template <KvType kType, int kHeads>
__device__ inline void run_part(const SplitOp& split, const Part& part, const Heads& heads,
                                const Plan& plan, Memory<kHeads>& memory) {
  const AttentionOp& op = split.op.op;
  const int thread = static_cast<int>(threadIdx.x);
  const int d = op.head_dim;
  auto* q = reinterpret_cast<float*>(dynamic_shared());  // (kHeads, d); later the threads' sums
  Softmax<kHeads> s;
  float sum[kHeads][kDims];
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    s.top[g] = -__builtin_inff();
    s.own[g] = 0;
    MOE_CUDA_UNROLL
    for (int i = 0; i < kDims; ++i) sum[g][i] = 0;
  }
  const int n_lanes = d / kDims;
  const int n_subs = kThreads / n_lanes;
  const int sub = thread / n_lanes;
  const int dim = thread % n_lanes * kDims;
  for (int base = part.begin; base < part.last; base += kBatch) {
    float correction[kHeads];
    weigh_batch<kType, kHeads>(part, base, q, d, op.multiplier, s, correction, memory);
    MOE_CUDA_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      MOE_CUDA_UNROLL
      for (int i = 0; i < kDims; ++i) sum[g][i] = sum[g][i] * correction[g];
    }
    if (sub < n_subs) {
      add_values<kType, kHeads>(part, base, sub, n_subs, dim, d, memory, sum);
    }
  }
  add_totals(s, memory);
  float* sums = q;  // (n_subs, kHeads, d)
  MOE_CUDA_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    MOE_CUDA_UNROLL
    for (int i = 0; i < kDims; i += 4) {
      if (sub >= n_subs) continue;
      *reinterpret_cast<float4*>(sums + (sub * kHeads + g) * d + dim + i) =
          make_float4(sum[g][i], sum[g][i + 1], sum[g][i + 2], sum[g][i + 3]);
    }
  }
  __syncthreads();
  write_part(split, heads, plan, sums, n_subs, s, memory);
}

/// The parts of one query, in order.
__device__ inline void merge_parts(const SplitOp& split, const Plan& plan, int64_t row, int head) {
  __shared__ float weight[kMaxSplits];
  const AttentionOp& op = split.op.op;
  const int d = op.head_dim;
  const int thread = static_cast<int>(threadIdx.x);
  const float* parts = partial_at(split, row, head, 0);
  const int64_t step = d + 2;
  float top = __ldcg(parts + d);
  for (int s = 1; s < plan.n_splits; ++s) {
    const float other = __ldcg(parts + s * step + d);
    top = other > top ? other : top;
  }
  __syncthreads();  // the query before is done with `weight`
  for (int s = thread; s < plan.n_splits; s += kThreads) {
    const float mine = __ldcg(parts + s * step + d);
    weight[s] = mine == top ? 1.0f : exp_float(mine - top);
  }
  __syncthreads();
  float total = 0;
  for (int s = 0; s < plan.n_splits; ++s) {
    total = fused(weight[s], __ldcg(parts + s * step + d + 1), total);
  }
  const Ending ending = end_softmax(top, total, op.sinks, head);
  for (int i = thread; i < d; i += kThreads) {
    float v = 0;
    MOE_CUDA_UNROLL_4
    for (int s = 0; s < plan.n_splits; ++s) v = fused(weight[s], __ldcg(parts + s * step + i), v);
    op.out[(row * op.n_heads + head) * d + i] = v * ending.scale / ending.total;
  }
}

/// True in the block that is the last to be done with its heads. Leaves `arrived` as it was.
__device__ inline bool last_to_arrive(const SplitOp& split, const Heads& heads, int n_splits) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const int64_t query = (heads.row - split.first_row) * split.op.op.n_heads + heads.first;
    int32_t* arrived = split.op.arrived + query;
    last = atomicAdd(arrived, 1) == n_splits - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

template <int kHeads>
__global__ void __launch_bounds__(kThreads, kHeads == 8   ? 2
                                            : kHeads == 4 ? 3
                                                          : 4) split_kernel(SplitOp split) {
  __shared__ Memory<kHeads> memory;
  const AttentionOp& a = split.op.op;
  const int group = a.n_heads / a.n_kv_heads;
  const int tiles = (group + kHeads - 1) / kHeads;
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int within = static_cast<int>(blockIdx.y) % tiles * kHeads;
  Heads heads;
  heads.row = split.first_row + static_cast<int>(blockIdx.z);
  heads.first = kv_head * group + within;
  heads.n = group - within < kHeads ? group - within : kHeads;
  const BatchRow at = a.rows[heads.row];
  const Seen seen = seen_by(at.position, a.window);
  const Plan plan = plan_of(seen, split.max_splits);
  const int index = static_cast<int>(blockIdx.x);
  if (index >= plan.n_splits) return;
  const KvCacheView cache = a.caches[at.session];
  auto* q = reinterpret_cast<float*>(dynamic_shared());
  if (split.prepare) {
    float* staged = q + kThreads * kDims * kHeads;
    read_queries(a, heads.row, at.position, heads.first, heads.n, kHeads, q, staged);
    if (index == plan.n_splits - 1) {
      cache_row(a, heads.row, at.position, cache, kv_head, staged);
    }
  } else {
    const float* from = a.q + (heads.row * a.n_heads + heads.first) * a.head_dim;
    for (int i = static_cast<int>(threadIdx.x); i < kHeads * a.head_dim; i += kThreads) {
      q[i] = i < heads.n * a.head_dim ? from[i] : 0.0f;
    }
    __syncthreads();
  }
  const int64_t element = head_place(cache, kv_head, a.head_dim);
  const int64_t scale = int64_t{kv_head} * cache.capacity;
  const bool f16 = cache.type == KvType::kF16;
  Part part;
  part.k = static_cast<const uint8_t*>(cache.layer.k) + element * (f16 ? 2 : 1);
  part.v = static_cast<const uint8_t*>(cache.layer.v) + element * (f16 ? 2 : 1);
  part.k_scale = f16 ? nullptr : cache.layer.k_scale + scale;
  part.v_scale = f16 ? nullptr : cache.layer.v_scale + scale;
  part.begin = (plan.first_block + index * plan.per_split) * kKeyBlock;
  part.first = part.begin > seen.first ? part.begin : seen.first;
  part.last = part.begin + plan.per_split * kKeyBlock;
  if (part.last > seen.last + 1) part.last = seen.last + 1;
  if (f16) {
    run_part<KvType::kF16, kHeads>(split, part, heads, plan, memory);
  } else {
    run_part<KvType::kInt8, kHeads>(split, part, heads, plan, memory);
  }
  if (split.op.arrived == nullptr || plan.n_splits == 1) return;
  if (!last_to_arrive(split, heads, plan.n_splits)) return;
  for (int g = 0; g < heads.n; ++g) merge_parts(split, plan, heads.row, heads.first + g);
}

__global__ void __launch_bounds__(kThreads) merge_kernel(SplitOp split) {
  const int64_t row = split.first_row + static_cast<int>(blockIdx.y);
  const AttentionOp& a = split.op.op;
  const Plan plan = plan_of(seen_by(a.rows[row].position, a.window), split.max_splits);
  if (plan.n_splits > 1) merge_parts(split, plan, row, static_cast<int>(blockIdx.x));
}

template <int kHeads>
cudaError_t launch_split(cudaStream_t stream, const SplitOp& split, int32_t n_rows,
                         int32_t n_splits) {
  const AttentionOp& a = split.op.op;
  const int32_t group = a.n_heads / a.n_kv_heads;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(n_splits),
                     static_cast<unsigned>(a.n_kv_heads * ((group + kHeads - 1) / kHeads)),
                     static_cast<unsigned>(n_rows));
  grid.threads = kThreads;
  grid.shared_bytes =
      sizeof(float) * (kThreads * kDims * kHeads + static_cast<size_t>(split.whole));
  return launch(split_kernel<kHeads>, grid, stream, split);
}

cudaError_t launch_rows(cudaStream_t stream, const SplitOp& split, int32_t n_rows,
                        int32_t n_splits) {
  const AttentionOp& a = split.op.op;
  const int32_t group = a.n_heads / a.n_kv_heads;
  cudaError_t error;
  if (group == 1) {
    error = launch_split<1>(stream, split, n_rows, n_splits);
  } else if (group == 2) {
    error = launch_split<2>(stream, split, n_rows, n_splits);
  } else if (group <= 4) {
    error = launch_split<4>(stream, split, n_rows, n_splits);
  } else {
    error = launch_split<8>(stream, split, n_rows, n_splits);
  }
  if (error != cudaSuccess || n_splits == 1 || split.op.arrived != nullptr) return error;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(a.n_heads), static_cast<unsigned>(n_rows));
  grid.threads = kThreads;
  return launch(merge_kernel, grid, stream, split);
}

/// Floats that a block stages to prepare its row.
int64_t staged_floats(const AttentionOp& a) {
  const int32_t heads = a.qk_norm == QkNorm::kWhole ? a.n_heads : a.n_kv_heads;
  return int64_t{heads > a.n_kv_heads ? heads : a.n_kv_heads} * a.head_dim;
}

}  // namespace

bool can_split(int32_t head_dim) { return head_dim % 16 == 0 && head_dim <= kMaxDim; }

bool can_prepare_in_split(const AttentionOp& op) {
  return can_split(op.head_dim) && staged_floats(op) <= kMaxStaged;
}

cudaError_t attend_split(cudaStream_t stream, const DeviceAttentionOp& op, int32_t max_splits,
                         bool prepare) {
  const AttentionOp& a = op.op;
  int32_t blocks = op.max_position / kKeyBlock + 1;
  if (a.window > 0 && a.window / kKeyBlock + 2 < blocks) blocks = a.window / kKeyBlock + 2;
  const int32_t n_splits = blocks < max_splits ? blocks : max_splits;
  SplitOp split{op, max_splits, 0, prepare, 0};
  if (prepare) split.whole = static_cast<int32_t>(staged_floats(a));
  for (; split.first_row < a.n_rows; split.first_row += kSplitRows) {
    const int32_t rest = a.n_rows - split.first_row;
    const cudaError_t error =
        launch_rows(stream, split, rest < kSplitRows ? rest : kSplitRows, n_splits);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace moe::cuda
