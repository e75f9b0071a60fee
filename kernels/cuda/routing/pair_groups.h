// SPDX-License-Identifier: MIT
#pragma once
// Sorts the active pairs of a layer by expert, then by token, without atomics: the work of a block.
//
// Tokens are split into chunks. A chunk's block counts its pairs per expert; one block converts the
// counts to the first place of every (expert, chunk); the chunks' blocks then assign places. A
// thread owns some experts and visits the chunk's pairs in order, so that places ascend with
// tokens. There are fewer than 2^31 slots.
// tokens. There are fewer than 2^31 slots.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/warp.h"
#include "kernels/math.h"

namespace moe::cuda::pairs {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kBatch = 2048;  // pairs in shared memory at a time
inline constexpr int kMaxChunks = 128;
inline constexpr int kSmallest = 2048;  // pairs up to which one chunk is used
inline constexpr int32_t kNone = -1;

struct GroupOp {
  Routing routing;
  int32_t n_experts;
  int32_t chunk_tokens;
  int32_t n_chunks;
  PairLists out;
  int32_t* places;  // scratch (n_chunks, n_experts): counts, then the first place
};

/// Experts of pairs [begin, begin + n) of all slots, kNone for refused ones. All threads.
__device__ inline void read_pairs(const GroupOp& op, int32_t begin, int n, int32_t* experts) {
  const int k = op.routing.max_k;
  for (int i = static_cast<int>(threadIdx.x); i < kBatch; i += kThreads) {
    int32_t expert = kNone;
    const int32_t at = begin + i;
    if (i < n) {
      const int32_t token = at / k;
      const bool asked = at - token * k < op.routing.count[token];
      if (asked && op.routing.kept[at] != 0) expert = op.routing.expert[at];
    }
    experts[i] = expert;
  }
}

/// Calls f(i, expert) for every pair of the chunk in order, i its slot; `experts`: kBatch. `mine`
/// selects this thread's pairs.
template <class F>
__device__ inline void for_chunk(const GroupOp& op, int chunk, int32_t mine, int32_t* experts,
                                 const F& f) {
  const int32_t k = op.routing.max_k;
  const int32_t first = chunk * op.chunk_tokens * k;
  const int32_t rest = op.routing.n_tokens * k - first;
  const int32_t last = first + (op.chunk_tokens * k < rest ? op.chunk_tokens * k : rest);
  for (int32_t begin = first; begin < last; begin += kBatch) {
    const int n = last - begin < kBatch ? last - begin : kBatch;
    __syncthreads();
    read_pairs(op, begin, n, experts);
    __syncthreads();
    const auto* four = reinterpret_cast<const int4*>(experts);
    for (int i = 0; i < n; i += 4) {
      const int4 e = four[i / 4];
      if (e.x == mine) f(begin + i);
      if (e.y == mine) f(begin + i + 1);
      if (e.z == mine) f(begin + i + 2);
      if (e.w == mine) f(begin + i + 3);
    }
  }
}

/// places[chunk] = counts of every expert.
__device__ inline void count_chunk(const GroupOp& op, int chunk, int32_t* experts) {
  for (int32_t base = 0; base < op.n_experts; base += kThreads) {
    const int32_t mine = base + static_cast<int32_t>(threadIdx.x);
    int32_t n = 0;
    for_chunk(op, chunk, mine, experts, [&](int32_t) { ++n; });
    if (mine < op.n_experts) op.places[int64_t{chunk} * op.n_experts + mine] = n;
  }
}

/// Exclusive prefix sum of `v` over the threads, plus `carry`, which grows by the total.
__device__ inline int32_t scan_block(int32_t v, int32_t* carry) {
  MOE_CUDA_SHARED(int32_t, of_warp, [kWarps]);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int32_t upto = warp_prefix_sum(v);
  __syncthreads();
  if (lane_id() == kWarp - 1) of_warp[warp] = upto;
  __syncthreads();
  int32_t before = *carry;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
    *carry += of_warp[w];
  }
  return before + upto - v;
}

/// Converts counts to first places; writes groups and their beginnings. One block.
__device__ inline void scan_chunks(const GroupOp& op) {
  int32_t n_pairs = 0;
  int32_t n_groups = 0;
  for (int32_t base = 0; base < op.n_experts; base += kThreads) {
    const int32_t e = base + static_cast<int32_t>(threadIdx.x);
    int32_t n = 0;
    if (e < op.n_experts) {
      MOE_UNROLL_8
      for (int c = 0; c < op.n_chunks; ++c) n += op.places[int64_t{c} * op.n_experts + e];
    }
    int32_t place = scan_block(n, &n_pairs);
    const int32_t group = scan_block(n > 0 ? 1 : 0, &n_groups);
    if (e >= op.n_experts) continue;
    if (n > 0) {
      op.out.group[group] = e;
      op.out.begin[group] = place;
    }
    for (int c = 0; c < op.n_chunks; ++c) {
      int32_t* at = op.places + int64_t{c} * op.n_experts + e;
      const int32_t here = *at;
      *at = place;
      place += here;
    }
  }
  if (threadIdx.x != 0) return;
  op.out.begin[n_groups] = n_pairs;
  *op.out.n_pairs = n_pairs;
  *op.out.n_groups = n_groups;
}

__device__ inline void place_chunk(const GroupOp& op, int chunk, int32_t* experts) {
  const int32_t k = op.routing.max_k;
  for (int32_t base = 0; base < op.n_experts; base += kThreads) {
    const int32_t mine = base + static_cast<int32_t>(threadIdx.x);
    int32_t place = mine < op.n_experts ? op.places[int64_t{chunk} * op.n_experts + mine] : 0;
    for_chunk(op, chunk, mine, experts, [&](int32_t at) {
      op.out.token[place] = at / k;
      op.out.expert[place] = mine;
      op.out.place[at] = place;
      ++place;
    });
  }
}

/// Marks slots without a pair.
__device__ inline void clear_places(const GroupOp& op, int chunk) {
  const int k = op.routing.max_k;
  const int first = chunk * op.chunk_tokens;
  for (int t = first; t < first + op.chunk_tokens && t < op.routing.n_tokens; ++t) {
    for (int j = static_cast<int>(threadIdx.x); j < k; j += kThreads) {
      op.out.place[int64_t{t} * k + j] = kNone;
    }
  }
}

/// Sorts a single chunk in one block. `experts`: kBatch, 16-byte aligned.
__device__ inline void group_block(const GroupOp& op, int32_t* experts) {
  clear_places(op, 0);
  count_chunk(op, 0, experts);
  __syncthreads();
  scan_chunks(op);
  __syncthreads();
  place_chunk(op, 0, experts);
}

struct Chunks {
  int32_t n;
  int32_t tokens;  // of each
};
inline Chunks chunks_of(int32_t n_tokens, int32_t max_k) {
  if (n_tokens <= 0) return {1, 1};
  if (int64_t{n_tokens} * max_k <= kSmallest) return {1, n_tokens};
  int32_t tokens = (n_tokens + kMaxChunks - 1) / kMaxChunks;
  if (tokens < kWarp) tokens = kWarp;
  return {(n_tokens + tokens - 1) / tokens, tokens};
}

}  // namespace moe::cuda::pairs
