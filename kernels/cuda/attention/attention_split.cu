// SPDX-License-Identifier: MIT
// Attention of single queries over long caches: the keys of a query are split into parts, a block
// per part and KV head, and the partial results are merged in order.
//
// A block processes its keys 128 at a time. First each thread has a key: it multiplies the whole
// key with the query heads that share it, as one chain over ascending dimensions, so that scores
// have the CPU's bits. Then each thread has 8 dimensions and every n-th key of the values. Queries
// and weights remain floats. The split depends only on the position of the query (and the window):
// not on the capacity, the grid or the other rows.
//
// A block norms and rotates its own queries; the one with a row's own position caches its key and
// value before reading them. The last block to finish a query merges its parts.

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_part.cuh"
#include "kernels/cuda/attention/attention_rows.h"
#include "kernels/math.h"

namespace moe::cuda {
namespace {

using namespace attention_part;

constexpr int kMaxDim = kWarp * kDims;
constexpr int64_t kMaxStaged = 12 * 1024;  // floats

struct Plan {
  int32_t first_block;
  int32_t n_blocks;
  int32_t per_split;
  int32_t n_splits;
};
__device__ inline Plan plan_of(const KeyRange& visible, int32_t max_splits) {
  Plan p;
  p.first_block = visible.first / kKeyBlock;
  p.n_blocks = visible.last / kKeyBlock + 1 - p.first_block;
  p.per_split = (p.n_blocks + max_splits - 1) / max_splits;
  p.n_splits = (p.n_blocks + p.per_split - 1) / p.per_split;
  return p;
}

/// Statistics of norms over a whole row: (n_heads or n_kv_heads, d) floats of x by one warp, staged
/// in `memory` by all threads.
__device__ inline RowStats whole_stats(const Norm& norm, const float* x, int n, float* memory,
                                       RowStats* shared) {
  __syncthreads();
  MOE_CUDA_UNROLL_4
  for (int i = 4 * static_cast<int>(threadIdx.x); i < n;
       i += 4 * kThreads) {  // d is a multiple of 16
    *reinterpret_cast<float4*>(memory + i) = *reinterpret_cast<const float4*>(x + i);
  }
  __syncthreads();
  if (threadIdx.x < kWarp) {
    const RowStats stats = row_stats(norm.kind, norm.eps, memory, n);
    if (threadIdx.x == 0) *shared = stats;
  }
  __syncthreads();
  return *shared;
}

/// Reads the row's heads [head, head + n) to q, normed and rotated; `memory`: staging for
/// whole_stats().
__device__ inline void read_queries(const AttentionOp& op, int64_t row, int32_t position, int head,
                                    int n, int n_padded, float* q, float* memory) {
  MOE_CUDA_SHARED(RowStats, shared);
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
    __syncwarp();
    turn_head(op, op.q_norm, stats, op.qk_norm == QkNorm::kWhole ? (head + g) * d : 0, angles, to);
  }
  __syncthreads();
}

/// Caches the row's key and value of one KV head. `memory`: n_kv_heads d floats.
__device__ inline void cache_row(const AttentionOp& op, int64_t row, int32_t position,
                                 const KvCacheView& cache, int kv_head, float* memory) {
  MOE_CUDA_SHARED(RowStats, shared);
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
    __syncwarp();
    turn_head(op, op.k_norm, stats, op.qk_norm == QkNorm::kWhole ? kv_head * d : 0,
              angles_of(op, position), k);
    __syncwarp();
    store_key(cache, kv_head, position, k, d);
  }
  if (warp == 1) {
    store_value(cache, kv_head, position, op.v + (row * op.n_kv_heads + kv_head) * d, op.clip, d);
  }
  __syncthreads();
}

/// Softmax totals including the sink: the result is sum * scale / total.
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
  int32_t first_row;  // first row; the partial memory begins with it
  bool prepare;       // queries, keys and values are not prepared yet
  int32_t whole;      // staged floats for norms over whole rows
};

/// Location of a part's sum, maximum and total.
__device__ inline float* partial_at(const SplitOp& s, int64_t row, int head, int split) {
  const int64_t query = (row - s.first_row) * s.op.op.n_heads + head;
  return s.op.partial + (query * s.max_splits + split) * (s.op.op.head_dim + 2);
}

/// The heads of one KV head in a block.
struct Heads {
  int64_t row;
  int first;
  int n;
};

/// Stores a part's sums, or the final result if there is only one part.
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
    weigh_batch<kType, kHeads>(part, base, q, d, op.multiplier, op.cap, s, correction, memory);
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

/// Weights, sums and endings of the parts of a block's heads.
template <int kHeads>
struct Merging {
  float weight[kHeads][kMaxSplits];  // first the maximum
  float total[kHeads][kMaxSplits];
  Ending ending[kHeads];
};

/// Merges the parts of some heads of a row in order. All loads of a step are under way at once.
template <int kHeads>
__device__ inline void merge_parts(const SplitOp& split, const Plan& plan, const Heads& heads,
                                   Merging<kHeads>& m) {
  const AttentionOp& op = split.op.op;
  const int d = op.head_dim;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < heads.n * plan.n_splits; i += kThreads) {
    const int g = i / plan.n_splits;
    const int s = i % plan.n_splits;
    const float* part = partial_at(split, heads.row, heads.first + g, s) + d;
    m.weight[g][s] = __ldcg(part);
    m.total[g][s] = __ldcg(part + 1);
  }
  __syncthreads();
  for (int g = thread / kWarp; g < heads.n; g += kWarps) {
    float top = -__builtin_inff();
    for (int s = lane_id(); s < plan.n_splits; s += kWarp) {
      top = m.weight[g][s] > top ? m.weight[g][s] : top;
    }
    top = warp_max(top);
    for (int s = lane_id(); s < plan.n_splits; s += kWarp) {
      const float mine = m.weight[g][s];
      m.weight[g][s] = mine == top ? 1.0f : exp_float(mine - top);
    }
    __syncwarp();
    if (lane_id() != 0) continue;
    float total = 0;
    MOE_UNROLL_8
    for (int s = 0; s < plan.n_splits; ++s) total = fused(m.weight[g][s], m.total[g][s], total);
    m.ending[g] = end_softmax(top, total, op.sinks, heads.first + g);
  }
  __syncthreads();
  for (int i = thread; i < heads.n * d; i += kThreads) {
    const int g = i / d;
    const float* parts = partial_at(split, heads.row, heads.first + g, 0) + i % d;
    float v = 0;
    MOE_UNROLL_8
    for (int s = 0; s < plan.n_splits; ++s) {
      v = fused(m.weight[g][s], __ldcg(parts + int64_t{s} * (d + 2)), v);
    }
    op.out[(heads.row * op.n_heads + heads.first + g) * d + i % d] =
        v * m.ending[g].scale / m.ending[g].total;
  }
}

/// True in the last block to finish its heads. Resets `arrived`.
__device__ inline bool last_to_arrive(const SplitOp& split, const Heads& heads, int n_splits) {
  MOE_CUDA_SHARED(bool, last);
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
  wait_for_previous();
  MOE_CUDA_SHARED(Memory<kHeads>, memory);
  MOE_CUDA_SHARED(Merging<kHeads>, merging);
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
  const KeyRange visible = visible_keys(at.position, a.window);
  const Plan plan = plan_of(visible, split.max_splits);
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
  part.first = part.begin > visible.first ? part.begin : visible.first;
  part.last = part.begin + plan.per_split * kKeyBlock;
  if (part.last > visible.last + 1) part.last = visible.last + 1;
  if (f16) {
    run_part<KvType::kF16, kHeads>(split, part, heads, plan, memory);
  } else {
    run_part<KvType::kInt8, kHeads>(split, part, heads, plan, memory);
  }
  if (split.op.arrived == nullptr || plan.n_splits == 1) return;
  if (!last_to_arrive(split, heads, plan.n_splits)) return;
  merge_parts(split, plan, heads, merging);
}

__global__ void __launch_bounds__(kThreads) merge_kernel(SplitOp split) {
  MOE_CUDA_SHARED(Merging<1>, merging);
  wait_for_previous();
  const int64_t row = split.first_row + static_cast<int>(blockIdx.y);
  const AttentionOp& a = split.op.op;
  const Plan plan = plan_of(visible_keys(a.rows[row].position, a.window), split.max_splits);
  if (plan.n_splits > 1)
    merge_parts<1>(split, plan, {row, static_cast<int>(blockIdx.x), 1}, merging);
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
