// SPDX-License-Identifier: MIT
// Reports on rows of logits from which the host samples tokens (kernels/sample.h).
//
// Three passes, a span of tokens per block: the largest logit; weights by span and by class of
// logits; the tokens of the selected classes. All sums are of integers, so the order of blocks does
// not matter; only the order of candidates is undefined.

#include <limits.h>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/warp.h"
#include "src/base/inline.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPer = kSampleSpan / kThreads;           // tokens per thread
constexpr int kClassesPer = kLogitClasses / kThreads;  // classes per thread

using Sum = unsigned long long;

/// A sortable key of a finite logit and its token: larger for larger logits, then for lower tokens.
__device__ inline uint64_t key_of(float logit, int token) {
  const uint32_t bits = logit == 0.0f ? 0u : static_cast<uint32_t>(ScalarLanes::bits(logit));
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | ~static_cast<uint32_t>(token);
}

/// Reduces over all threads, with the result in all. Call once per block.
__device__ inline void reduce_best(uint64_t* key, int* bad) {
  MOE_CUDA_SHARED(uint64_t, keys, [kWarps]);
  MOE_CUDA_SHARED(int, bads, [kWarps]);
  for (int half = kWarp / 2; half > 0; half /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, *key, half);
    *key = other > *key ? other : *key;
  }
  *bad = __reduce_min_sync(kAllLanes, *bad);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane_id() == 0) {
    keys[warp] = *key;
    bads[warp] = *bad;
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) {
    *key = keys[w] > *key ? keys[w] : *key;
    *bad = bads[w] < *bad ? bads[w] : *bad;
  }
}

/// Inclusive prefix sum over the threads, and the total. Call once per block and T.
template <class T>
__device__ inline T prefix_sum(T v, T* total) {
  MOE_CUDA_SHARED(T, sums, [kWarps]);
  const int lane = lane_id();
  for (int step = 1; step < kWarp; step *= 2) {
    const T other = __shfl_sync(kAllLanes, v, lane >= step ? lane - step : lane);
    if (lane >= step) v += other;
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane == kWarp - 1) sums[warp] = v;
  __syncthreads();
  T all = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) v += sums[w];
    all += sums[w];
  }
  *total = all;
  return v;
}

/// One row in a block.
struct Row {
  int64_t row;
  int span;
  int n_spans;
  const float* logits;
  SampleSpec spec;
};

__device__ inline Row row_of(const DeviceSampleOp& op) {
  const int64_t row = blockIdx.y;
  return {row, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x),
          op.op.logits + row * op.op.vocab_size, op.op.specs[row]};
}

/// Calls f(token, logit) for this thread's tokens of the span.
template <class F>
__device__ inline void each_token(const DeviceSampleOp& op, const Row& r, const F& f) {
  float v[kPer];
  const int first = r.span * kSampleSpan + static_cast<int>(threadIdx.x);
  MOE_CUDA_UNROLL
  for (int i = 0; i < kPer; ++i) {
    const int token = first + i * kThreads;
    v[i] = token < op.op.vocab_size ? r.logits[token] : 0;
  }
  MOE_CUDA_UNROLL
  for (int i = 0; i < kPer; ++i) {
    const int token = first + i * kThreads;
    if (token < op.op.vocab_size) f(token, v[i]);
  }
}

__global__ void __launch_bounds__(kThreads) best_kernel(DeviceSampleOp op) {
  wait_for_previous();
  const Row r = row_of(op);
  const int thread = static_cast<int>(threadIdx.x);
  float* copy = op.op.copies[r.row];
  uint64_t key = 0;
  int bad = INT_MAX;
  each_token(op, r, [&](int token, float logit) {
    if (copy != nullptr) copy[token] = logit;
    if (is_finite(logit)) {
      const uint64_t k = key_of(logit, token);
      key = k > key ? k : key;
    } else {
      bad = token < bad ? token : bad;
    }
  });
  if (!wants_anything(r.spec)) return;
  reduce_best(&key, &bad);
  if (thread == 0) {
    op.best[r.row * r.n_spans + r.span] = key;
    op.bad[r.row * r.n_spans + r.span] = bad;
    if (r.span == 0) op.cursor[r.row] = 0;
  }
  for (int c = r.span * kThreads + thread; c < kLogitClasses; c += r.n_spans * kThreads) {
    op.counts[r.row * kLogitClasses + c] = 0;
    op.classes[r.row * kLogitClasses + c] = 0;
  }
}

/// Result of best_kernel over all spans.
__device__ inline SampleHead head_of(const DeviceSampleOp& op, const Row& r) {
  uint64_t key = 0;
  int bad = INT_MAX;
  for (int i = static_cast<int>(threadIdx.x); i < r.n_spans; i += kThreads) {
    const uint64_t k = op.best[r.row * r.n_spans + i];
    key = k > key ? k : key;
    const int b = op.bad[r.row * r.n_spans + i];
    bad = b < bad ? b : bad;
  }
  reduce_best(&key, &bad);
  if (bad != INT_MAX) return {bad, -1, 0, 0};
  const int best = static_cast<int>(~static_cast<uint32_t>(key));
  return {-1, best, r.logits[best], 0};
}

/// A block's part of the classes.
struct Classes {
  uint32_t counts[kLogitClasses];
  Sum weights[kLogitClasses];
};

__global__ void __launch_bounds__(kThreads) sums_kernel(DeviceSampleOp op) {
  wait_for_previous();
  MOE_CUDA_SHARED(Classes, classes);
  const Row r = row_of(op);
  if (!wants_anything(r.spec)) return;
  const int thread = static_cast<int>(threadIdx.x);
  const bool counted = wants_candidates(r.spec);
  for (int c = thread; counted && c < kLogitClasses; c += kThreads) {
    classes.counts[c] = 0;
    classes.weights[c] = 0;
  }
  const SampleHead head = head_of(op, r);  // includes a barrier
  if (r.span == 0 && thread == 0) op.heads[r.row] = head;
  if (head.bad >= 0) return;
  const float units = weight_units(op.op.vocab_size);
  const float temperature = r.spec.temperature;
  Sum sum = 0;
  Sum weights = 0;
  each_token(op, r, [&](int, float logit) {
    const float distance = logit - head.best_logit;
    const float plain = exp_float(distance);
    sum += token_weight(plain, units);
    float p = plain;
    if (temperature != 1.0f) p = temperature > 0 ? exp_float(distance / temperature) : 0.0f;
    const Sum weight = token_weight(p, units);
    if (p >= r.spec.min_p) weights += weight;
    if (!counted) return;
    const int c = logit_class(head.best_logit, logit);
    atomicAdd(&classes.counts[c], 1u);
    atomicAdd(&classes.weights[c], weight);
  });
  struct Both {
    Sum sum;
    Sum weights;
  };
  MOE_CUDA_SHARED(Both, parts, [kWarps]);
  for (int half = kWarp / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, half);
    weights += __shfl_xor_sync(kAllLanes, weights, half);
  }
  if (lane_id() == 0) parts[thread / kWarp] = {sum, weights};
  __syncthreads();
  if (thread == 0) {
    for (int w = 1; w < kWarps; ++w) {
      sum += parts[w].sum;
      weights += parts[w].weights;
    }
    op.span_sums[r.row * r.n_spans + r.span] = sum;
    op.span_weights[r.row * r.n_spans + r.span] = weights;
  }
  for (int c = thread; counted && c < kLogitClasses; c += kThreads) {
    if (classes.counts[c] == 0) continue;
    atomicAdd(&op.counts[r.row * kLogitClasses + c], classes.counts[c]);
    atomicAdd(&op.classes[r.row * kLogitClasses + c], classes.weights[c]);
  }
}

/// Number of classes that are requested and fit, nearest first, and of their tokens.
struct Wanted {
  int classes;
  int tokens;
};

__device__ inline Wanted wanted_classes(const DeviceSampleOp& op, const Row& r) {
  MOE_CUDA_SHARED(Wanted, wanted);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) wanted = {0, 0};
  uint32_t counts[kClassesPer];
  Sum weights[kClassesPer];
  uint32_t n = 0;
  Sum held = 0;
  MOE_CUDA_UNROLL
  for (int i = 0; i < kClassesPer; ++i) {
    const int64_t c = r.row * kLogitClasses + thread * kClassesPer + i;
    n += counts[i] = op.counts[c];
    held += weights[i] = op.classes[c];
  }
  uint32_t all_tokens = 0;
  Sum total = 0;
  uint32_t before = prefix_sum(n, &all_tokens) - n;
  Sum held_before = prefix_sum(held, &total) - held;
  const double share = static_cast<double>(r.spec.share) * static_cast<double>(total);
  MOE_CUDA_UNROLL
  for (int i = 0; i < kClassesPer; ++i) {
    const bool satisfied = before >= static_cast<uint32_t>(r.spec.n_candidates) &&
                           static_cast<double>(held_before) >= share;
    before += counts[i];
    held_before += weights[i];
    if (satisfied || before > static_cast<uint32_t>(kMaxCandidates)) break;
    if (counts[i] == 0) continue;
    atomicMax(&wanted.classes, thread * kClassesPer + i + 1);
    atomicMax(&wanted.tokens, static_cast<int>(before));
  }
  __syncthreads();
  return wanted;
}

__global__ void __launch_bounds__(kThreads) collect_kernel(DeviceSampleOp op) {
  wait_for_previous();
  MOE_CUDA_SHARED(int, first);
  MOE_CUDA_SHARED(int, n_here);
  const Row r = row_of(op);
  if (!wants_candidates(r.spec)) return;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) n_here = 0;
  const SampleHead head = head_of(op, r);
  if (head.bad >= 0) return;
  const Wanted wanted = wanted_classes(op, r);
  if (r.span == 0 && thread == 0) op.heads[r.row].n_candidates = wanted.tokens;
  const auto taken = [&](float logit) {
    return logit_class(head.best_logit, logit) < wanted.classes;
  };
  int mine = 0;
  each_token(op, r, [&](int, float logit) { mine += taken(logit) ? 1 : 0; });
  int at = mine > 0 ? atomicAdd(&n_here, mine) : 0;
  __syncthreads();
  if (n_here == 0) return;
  if (thread == 0) first = atomicAdd(&op.cursor[r.row], n_here);
  __syncthreads();
  TokenCandidate* to = op.candidates_of + r.row * kMaxCandidates + first;
  each_token(op, r, [&](int token, float logit) {
    if (taken(logit)) to[at++] = {logit, token};
  });
}

}  // namespace

cudaError_t sample_rows(cudaStream_t stream, const DeviceSampleOp& op) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(sample_spans(op.op.vocab_size)),
                     static_cast<unsigned>(op.op.n_rows));
  grid.threads = kThreads;
  cudaError_t error = launch(best_kernel, grid, stream, op);
  if (error == cudaSuccess && op.sums) error = launch(sums_kernel, grid, stream, op);
  if (error == cudaSuccess && op.candidates) error = launch(collect_kernel, grid, stream, op);
  return error;
}

}  // namespace moe::cuda
