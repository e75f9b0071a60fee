// SPDX-License-Identifier: MIT
// The weighted sum of a token's expert outputs, in ascending order of experts for any location of
// their pairs.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/warp.h"
#include "kernels/math.h"
#include "src/base/inline.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kSpan = 4 * kThreads;  // columns per block

struct Served {
  int32_t place;
  float weight;
};
constexpr size_t kPairBytes = sizeof(Served) + sizeof(int32_t);
/// Pairs with room in shared memory. nvcc reads two experts at a time, one past the last.
MOE_INLINE int32_t room_for(int32_t pairs) { return pairs + pairs % 2; }
constexpr size_t kStaticBytes = 128;  // at most, with alignment

/// Sorts the token's active pairs by ascending expert to `served`; returns their number.
__device__ inline int sort_pairs(const CombineOp& op, int64_t token, int32_t* experts,
                                 Served* served) {
  MOE_CUDA_SHARED(int32_t, n_served);
  const int k = op.routing.max_k;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) n_served = 0;
  for (int j = thread; j < k; j += kThreads) {
    const int32_t expert = op.routing.expert[token * k + j];
    experts[j] = op.place[token * k + j] < 0 ? -1 : expert;
  }
  __syncthreads();
  int mine = 0;
  for (int j = thread; j < k; j += kThreads) {
    const int32_t expert = experts[j];
    if (expert < 0) continue;
    int rank = 0;
    for (int i = 0; i < k; ++i) rank += experts[i] >= 0 && experts[i] < expert ? 1 : 0;
    served[rank] = {op.place[token * k + j], op.routing.weight[token * k + j]};
    ++mine;
  }
  if (mine > 0) atomicAdd(&n_served, mine);
  __syncthreads();
  return n_served;
}

__device__ inline void write_result(const CombineOp& op, int64_t token, int c, bool aligned,
                                    float4 sum) {
  float* y = op.y + token * op.d;
  const float w = op.scale;
  float4 v = make_float4(w * sum.x, w * sum.y, w * sum.z, w * sum.w);
  if (op.accumulate) {
    const float4 old = load_four(y, c, op.d, aligned);
    v = make_float4(fused(w, sum.x, old.x), fused(w, sum.y, old.y), fused(w, sum.z, old.z),
                    fused(w, sum.w, old.w));
  }
  store_four(y, c, op.d, aligned, v);
}

__global__ void __launch_bounds__(kThreads) combine_kernel(CombineOp op, bool aligned) {
  wait_for_previous();
  const int64_t token = blockIdx.x;
  const int k = op.routing.max_k;
  auto* served = reinterpret_cast<Served*>(dynamic_shared());
  auto* experts = reinterpret_cast<int32_t*>(served + room_for(k));
  const int n = sort_pairs(op, token, experts, served);
  for (int c = static_cast<int>(blockIdx.y * kSpan + 4 * threadIdx.x); c < op.d;
       c += static_cast<int>(gridDim.y) * kSpan) {
    float4 sum = make_float4(0, 0, 0, 0);
    float4 x = sum;
    if (op.subtract != nullptr) x = load_four(op.subtract + token * op.d, c, op.d, aligned);
    MOE_UNROLL_8
    for (int i = 0; i < n; ++i) {
      float4 v = load_four(op.outputs + int64_t{served[i].place} * op.d, c, op.d, aligned);
      const float w = served[i].weight;
      if (op.subtract != nullptr) v = make_float4(v.x - x.x, v.y - x.y, v.z - x.z, v.w - x.w);
      sum = make_float4(fused(w, v.x, sum.x), fused(w, v.y, sum.y), fused(w, v.z, sum.z),
                        fused(w, v.w, sum.w));
    }
    if (op.sum != nullptr) store_four(op.sum + token * op.d, c, op.d, aligned, sum);
    if (op.y != nullptr) write_result(op, token, c, aligned, sum);
  }
}

}  // namespace

cudaError_t combine(cudaStream_t stream, const CombineOp& op) {
  if (op.routing.n_tokens <= 0) return cudaSuccess;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(op.routing.n_tokens),
                     static_cast<unsigned>((op.d + kSpan - 1) / kSpan));
  grid.threads = kThreads;
  grid.shared_bytes = static_cast<size_t>(room_for(op.routing.max_k)) * kPairBytes;
  const bool aligned = rows_aligned(op.outputs, op.d) && rows_aligned(op.sum, op.d) &&
                       rows_aligned(op.subtract, op.d) && rows_aligned(op.y, op.d);
  return launch(combine_kernel, grid, stream, op, aligned);
}

int32_t most_combined(size_t shared) {
  return static_cast<int32_t>((shared - kStaticBytes) / kPairBytes) / 2 * 2;
}

}  // namespace moe::cuda
