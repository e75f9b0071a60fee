// SPDX-License-Identifier: MIT
// Routers on the device: the code of kernels/router, run by a warp per token or, if a token has
// more experts than a warp's registers hold, by one thread per token. Then capacity.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/routing/pair_groups.h"
#include "kernels/cuda/routing/route_warp.h"
#include "kernels/router/all.h"
#include "kernels/router/capacity.h"
#include "src/base/inline.h"

namespace moe::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;
constexpr int kThreads = kWarpsPerBlock * kWarp;
constexpr int kMaxPer = 16;                    // experts per lane
constexpr int32_t kFewTokens = pairs::kWarps;  // one per warp of the single block

template <class Team>
__device__ inline int32_t route_one(const RouterConfig& r, const RouterInput& in,
                                    const RouterScratch& scratch, const RouterChoice& out) {
  switch (r.kind) {
#define MOE_ROUTER(Name, header) \
  case RouterKind::k##Name:      \
    return Name##Router::route<Team>(r, in, scratch, out);
#include "kernels/router/list.h"
#undef MOE_ROUTER
  }
  return 0;
}

__device__ inline RouterInput input_of(const DeviceRouteOp& op, int64_t token) {
  RouterInput in;
  in.n_experts = op.n_experts;
  in.selection_bias = op.selection_bias;
  if (op.scores == nullptr) {
    in.table_entry = op.table[op.rows[token / op.n_subheads].token];
  } else {
    in.scores = op.scores + token * op.n_experts;
  }
  return in;
}

/// A token whose scores are not finite takes no expert; reports the lowest such token.
__device__ inline void report(const DeviceRouteOp& op, int64_t token) {
  int32_t seen = *op.fault;
  const auto mine = static_cast<int32_t>(token + 1);
  while (seen == 0 || seen > mine) {
    const int32_t found = atomicCAS(op.fault, seen, mine);
    if (found == seen) return;
    seen = found;
  }
}

__device__ inline void write_slot(const DeviceRouteOp& op, int64_t at, int32_t expert, float weight,
                                  float prob, bool kept) {
  op.out.expert[at] = expert;
  op.out.weight[at] = weight;
  op.prob[at] = prob;
  op.out.kept[at] = kept ? 1 : 0;
}

/// Floats of shared memory per warp.
inline size_t warp_floats(const DeviceRouteOp& op) {
  return (op.scores != nullptr ? 2 * static_cast<size_t>(op.n_experts) : 0) +
         3 * static_cast<size_t>(op.out.max_k);
}

/// Routes one token with a warp and its floats.
template <int kPer>
__device__ inline void route_token(const DeviceRouteOp& op, int64_t token, float* memory) {
  const int k = op.out.max_k;
  const int n = op.scores != nullptr ? op.n_experts : 0;
  const RouterScratch scratch{memory, memory + n, nullptr};
  const RouterChoice choice{reinterpret_cast<int32_t*>(memory + 2 * n), memory + 2 * n + k,
                            memory + 2 * n + 2 * k};
  const RouterInput in = input_of(op, token);
  bool bad = false;
  for (int i = lane_id(); i < n; i += kWarp) bad = bad || !is_finite(in.scores[i]);
  const bool ok = !__any_sync(kAllLanes, bad ? 1 : 0);
  int32_t count = 0;
  if (ok) {
    count = route_one<WarpTeam<kPer>>(op.config, in, scratch, choice);
  } else if (lane_id() == 0) {
    report(op, token);
  }
  if (lane_id() == 0) op.out.count[token] = count;
  for (int j = lane_id(); j < k; j += kWarp) {
    write_slot(op, token * k + j, ok ? choice.expert[j] : 0, ok ? choice.weight[j] : 0.0f,
               ok ? choice.prob[j] : 0.0f, j < count);
  }
}

template <int kPer>
__global__ void __launch_bounds__(kThreads) route_warps(DeviceRouteOp op, int32_t floats) {
  wait_for_previous();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t token = int64_t{blockIdx.x} * kWarpsPerBlock + warp;
  if (token >= op.out.n_tokens) return;
  route_token<kPer>(op, token, reinterpret_cast<float*>(dynamic_shared()) + warp * floats);
}

/// Few tokens: one block routes them and sorts their pairs.
template <int kPer>
__global__ void __launch_bounds__(pairs::kThreads, 1)
    route_and_group_kernel(DeviceRouteOp op, pairs::GroupOp group, int32_t floats) {
  wait_for_previous();
  MOE_CUDA_SHARED(int32_t, numbers, [pairs::kSharedExperts]);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* memory = reinterpret_cast<float*>(dynamic_shared()) + warp * floats;
  for (int64_t token = warp; token < op.out.n_tokens; token += pairs::kWarps) {
    route_token<kPer>(op, token, memory);
    __syncwarp();
  }
  __syncthreads();
  pairs::group_block(group, numbers);
}

__global__ void __launch_bounds__(kThreads, 1) route_threads(DeviceRouteOp op) {
  wait_for_previous();
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token >= op.out.n_tokens) return;
  const int k = op.out.max_k;
  const int64_t n = op.n_experts;
  const RouterInput in = input_of(op, token);
  bool ok = true;
  for (int i = 0; in.scores != nullptr && i < n; ++i) ok = ok && is_finite(in.scores[i]);
  const RouterScratch scratch{op.floats + 2 * n * token, op.floats + 2 * n * token + n,
                              op.ints + n * token};
  const int64_t at = token * k;
  int32_t count = 0;
  if (ok) {
    const RouterChoice choice{op.out.expert + at, op.prob + at, op.out.weight + at};
    count = route_one<OneThread>(op.config, in, scratch, choice);
  } else {
    report(op, token);
    for (int j = 0; j < k; ++j) write_slot(op, at + j, 0, 0, 0, false);
  }
  op.out.count[token] = count;
  for (int j = 0; j < k; ++j) op.out.kept[at + j] = j < count ? 1 : 0;
}

/// Tokens in `token`'s run of rows of one session.
struct Run {
  int32_t begin;
  int32_t end;
};
__device__ inline Run run_of(const DeviceRouteOp& op, int32_t token) {
  const int32_t subs = op.n_subheads;
  const int32_t n_rows = op.out.n_tokens / subs;
  int32_t first = token / subs;
  int32_t last = first + 1;
  if (op.rows == nullptr) return {0, op.out.n_tokens};
  const int32_t session = op.rows[first].session;
  while (first > 0 && op.rows[first - 1].session == session) --first;
  while (last < n_rows && op.rows[last].session == session) ++last;
  return {first * subs, last * subs};
}

/// One thread per pair counts the pairs that its expert serves earlier: lower rank, then
/// (kPriority) higher probability, then lower token.
__global__ void __launch_bounds__(kThreads) capacity_kernel(DeviceRouteOp op) {
  wait_for_previous();
  const int32_t k = op.out.max_k;
  const auto at = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (at >= op.out.n_tokens * k) return;
  const int32_t token = at / k;
  const int32_t slot = at - token * k;
  if (slot >= op.out.count[token]) return;
  const Run run = run_of(op, token);
  const int32_t capacity =
      capacity_of(run.end - run.begin, op.n_experts, static_cast<double>(op.config.gamma),
                  op.config.min_capacity);
  const int32_t expert = op.out.expert[at];
  const float prob = op.prob[at];
  int32_t served = 0;
  for (int32_t t = run.begin; t < run.end; ++t) {
    const int32_t count = op.out.count[t];
    for (int32_t j = 0; j < count && j <= slot; ++j) {
      const int32_t other = t * k + j;
      if (op.out.expert[other] != expert) continue;
      bool earlier = j < slot;
      if (j == slot) {
        const float p = op.prob[other];
        const bool priority = op.config.order == CapacityOrder::kPriority;
        earlier = priority && p != prob ? p > prob : t < token;
      }
      served += earlier ? 1 : 0;
    }
  }
  if (served < capacity) return;
  op.out.kept[at] = 0;
  op.out.weight[at] = 0;
}

/// Calls f.template run<kPer>() with the smallest team for all experts; false: none suffices.
template <int kPer, class F>
bool with_team(const DeviceRouteOp& op, const F& f) {
  if constexpr (kPer > kMaxPer) {
    return false;
  } else {
    if (op.scores != nullptr && op.n_experts > kPer * kWarp) {
      return with_team<2 * kPer>(op, f);
    }
    f.template run<kPer>();
    return true;
  }
}

struct RouteAlone {
  cudaStream_t stream;
  const DeviceRouteOp& op;
  cudaError_t* error;
  template <int kPer>
  void run() const {
    Grid grid;
    grid.threads = kThreads;
    grid.blocks = static_cast<unsigned>((op.out.n_tokens + kWarpsPerBlock - 1) / kWarpsPerBlock);
    grid.shared_bytes = kWarpsPerBlock * warp_floats(op) * sizeof(float);
    *error = launch(route_warps<kPer>, grid, stream, op, static_cast<int32_t>(warp_floats(op)));
  }
};

struct RouteAndGroup {
  cudaStream_t stream;
  const DeviceRouteOp& op;
  const pairs::GroupOp& group;
  cudaError_t* error;
  template <int kPer>
  void run() const {
    Grid grid;
    grid.threads = pairs::kThreads;
    grid.shared_bytes = pairs::kWarps * warp_floats(op) * sizeof(float);
    *error = launch(route_and_group_kernel<kPer>, grid, stream, op, group,
                    static_cast<int32_t>(warp_floats(op)));
  }
};

}  // namespace

cudaError_t route_tokens(cudaStream_t stream, const DeviceRouteOp& op) {
  if (op.out.n_tokens <= 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  Grid grid;
  grid.threads = kThreads;
  if (!with_team<1>(op, RouteAlone{stream, op, &error})) {
    grid.blocks = static_cast<unsigned>((op.out.n_tokens + kThreads - 1) / kThreads);
    error = launch(route_threads, grid, stream, op);
  }
  if (error != cudaSuccess || !(op.config.gamma > 0)) return error;
  const int32_t slots = op.out.n_tokens * op.out.max_k;
  grid.blocks = static_cast<unsigned>((slots + kThreads - 1) / kThreads);
  return launch(capacity_kernel, grid, stream, op);
}

cudaError_t route_and_group(cudaStream_t stream, const DeviceRouteOp& op, const PairLists& out,
                            int32_t* scratch) {
  const int32_t n = op.out.n_tokens;
  const bool few = n > 0 && n <= kFewTokens && pairs::chunks_of(n, op.out.max_k).n == 1;
  if (few && !(op.config.gamma > 0)) {
    const pairs::GroupOp group{op.out, op.n_experts, n, 1, out, scratch};
    cudaError_t error = cudaSuccess;
    if (with_team<1>(op, RouteAndGroup{stream, op, group, &error})) return error;
  }
  const cudaError_t error = route_tokens(stream, op);
  if (error != cudaSuccess) return error;
  return group_pairs(stream, op.out, op.n_experts, out, scratch);
}

}  // namespace moe::cuda
