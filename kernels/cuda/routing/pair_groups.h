// SPDX-License-Identifier: MIT
#pragma once
// Sorts the active pairs of a layer by expert, then by token: the work of a block.
//
// Tokens are split into chunks. A chunk's block counts its pairs per expert; one block converts the
// counts to the first place of every (expert, chunk); the chunks' blocks then assign places, their
// warps one after the other, so that places ascend with tokens. There are fewer than 2^31 slots.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/warp.h"
#include "kernels/math.h"

namespace moe::cuda::pairs {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kSharedExperts = 1024;  // whose numbers fit in shared memory
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

/// The slots of a chunk.
struct Slots {
  int32_t begin;
  int32_t end;
};
__device__ inline Slots slots_of(const GroupOp& op, int chunk) {
  const int32_t n = op.chunk_tokens * op.routing.max_k;
  const int32_t begin = chunk * n;
  const int32_t rest = op.routing.n_tokens * op.routing.max_k - begin;
  return {begin, begin + (n < rest ? n : rest)};
}

/// The expert of a slot, kNone for a refused or empty one.
__device__ inline int32_t expert_of(const GroupOp& op, int32_t at) {
  const int32_t token = at / op.routing.max_k;
  const bool asked = at - token * op.routing.max_k < op.routing.count[token];
  return asked && op.routing.kept[at] != 0 ? op.routing.expert[at] : kNone;
}

/// A number for every expert of a chunk: in shared memory if it is large enough, else in scratch.
__device__ inline int32_t* numbers_of(const GroupOp& op, int chunk, int32_t* shared) {
  return op.n_experts <= kSharedExperts ? shared : op.places + int64_t{chunk} * op.n_experts;
}

__device__ inline void copy_numbers(const GroupOp& op, const int32_t* from, int32_t* to) {
  for (int e = static_cast<int>(threadIdx.x); e < op.n_experts; e += kThreads) to[e] = from[e];
  __syncthreads();
}

/// numbers = counts of every expert.
__device__ inline void count_chunk(const GroupOp& op, int chunk, int32_t* numbers) {
  for (int e = static_cast<int>(threadIdx.x); e < op.n_experts; e += kThreads) numbers[e] = 0;
  __syncthreads();
  const Slots slots = slots_of(op, chunk);
  for (int32_t at = slots.begin + static_cast<int32_t>(threadIdx.x); at < slots.end;
       at += kThreads) {
    const int32_t expert = expert_of(op, at);
    if (expert != kNone) atomicAdd(&numbers[expert], 1);
  }
  __syncthreads();
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

/// Converts counts, (n_chunks, n_experts), to first places; writes groups and their beginnings. One
/// block.
__device__ inline void scan_chunks(const GroupOp& op, int32_t* numbers) {
  int32_t n_pairs = 0;
  int32_t n_groups = 0;
  for (int32_t base = 0; base < op.n_experts; base += kThreads) {
    const int32_t e = base + static_cast<int32_t>(threadIdx.x);
    int32_t n = 0;
    if (e < op.n_experts) {
      MOE_UNROLL_8
      for (int c = 0; c < op.n_chunks; ++c) n += numbers[int64_t{c} * op.n_experts + e];
    }
    int32_t place = scan_block(n, &n_pairs);
    const int32_t group = scan_block(n > 0 ? 1 : 0, &n_groups);
    if (e >= op.n_experts) continue;
    if (n > 0) {
      op.out.group[group] = e;
      op.out.begin[group] = place;
    }
    for (int c = 0; c < op.n_chunks; ++c) {
      int32_t* at = numbers + int64_t{c} * op.n_experts + e;
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

/// Places a chunk's pairs; `numbers`: first places, which become those after the last.
__device__ inline void place_chunk(const GroupOp& op, int chunk, int32_t* numbers) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Slots slots = slots_of(op, chunk);
  for (int32_t begin = slots.begin; begin < slots.end; begin += kThreads) {
    const int32_t at = begin + static_cast<int32_t>(threadIdx.x);
    const int32_t expert = at < slots.end ? expert_of(op, at) : kNone;
    const uint32_t same = __match_any_sync(kAllLanes, expert);
    const int before = __popc(same & ((1u << lane_id()) - 1));
    int32_t place = 0;
    for (int w = 0; w < kWarps && begin + w * kWarp < slots.end; ++w) {
      if (w == warp && expert != kNone && before == 0) {
        place = numbers[expert];
        numbers[expert] = place + __popc(same);
      }
      __syncthreads();
    }
    place = __shfl_sync(kAllLanes, place, __ffs(static_cast<int>(same)) - 1) + before;
    if (at >= slots.end) continue;
    op.out.place[at] = expert != kNone ? place : kNone;
    if (expert == kNone) continue;
    op.out.token[place] = at / op.routing.max_k;
    op.out.expert[place] = expert;
  }
}

/// Sorts a single chunk in one block. `shared`: kSharedExperts numbers.
__device__ inline void group_block(const GroupOp& op, int32_t* shared) {
  int32_t* const numbers = numbers_of(op, 0, shared);
  count_chunk(op, 0, numbers);
  scan_chunks(op, numbers);
  __syncthreads();
  place_chunk(op, 0, numbers);
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
