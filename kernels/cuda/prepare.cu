// SPDX-License-Identifier: MIT
// Norm and quantisation of rows of activations in one pass over them.
//
// A block has one row, or several short ones, in shared memory. One warp of the row sums it in the
// CPU's 16 stripes, a chain of d / 16 multiply-adds; everything else is done by all warps, 256
// elements each: lane l has elements 4 l.. and 128 + 4 l...

#include "kernels/cuda/norm.h"
#include "kernels/cuda/ops.h"
#include "quant/activation.h"

namespace moe::cuda {
namespace {

constexpr int kSpan = 256;  // elements per warp and iteration
constexpr int kGroupLanes = kActGroup / 4;
constexpr int kMaxThreads = 1024;
constexpr int64_t kMaxHeld = 24 * 1024;  // maximum floats of a row in shared memory
static_assert(kSpan == kActBlock, "a warp has a whole block of a8_block");

struct Shape {
  int32_t padded;  // floats between rows in shared memory; 0: rows are read in place
  bool x_aligned;
  bool d_aligned;  // rows of d floats: normed, norm's weights
};

struct Eight {
  float v[8];
};
__device__ inline int place(int span, int j) {
  return span * kSpan + (j / 4) * 128 + 4 * lane_id() + j % 4;
}

__device__ inline Eight read_span(const float* row, int span, int d, bool aligned) {
  const float4 a = load_four(row, place(span, 0), d, aligned);
  const float4 b = load_four(row, place(span, 4), d, aligned);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ inline Eight norm_span(const Norm& norm, RowStats stats, const Eight& x, int span, int d,
                                  bool aligned) {
  if (norm.kind == NormKind::kNone) return x;
  Eight y;
  for (int j = 0; j < 8; ++j) y.v[j] = (x.v[j] - stats.mean) * stats.scale;
  if (norm.weight != nullptr) {
    const Eight w = read_span(norm.weight, span, d, aligned);
    for (int j = 0; j < 8; ++j) y.v[j] = y.v[j] * w.v[j];
  }
  if (norm.bias != nullptr) {
    const Eight b = read_span(norm.bias, span, d, aligned);
    for (int j = 0; j < 8; ++j) y.v[j] = y.v[j] + b.v[j];
  }
  for (int j = 0; j < 8; ++j) y.v[j] = place(span, j) < d ? y.v[j] : 0.0f;
  return y;
}

__device__ inline int largest_magnitude(const float* x, int n) {
  int m = 0;
  for (int i = 0; i < n; ++i) {
    const int bits = ScalarLanes::bits(x[i]) & 0x7fffffff;
    m = bits > m ? bits : m;
  }
  return m;
}

/// Where the codes of a row go, and their range.
struct CodesOfRow {
  int8_t* codes;
  int64_t ld;
  float lowest;
};

/// Writes the codes of four inputs from `at` on, if within the row; returns their sum.
__device__ inline int quantise_four(const float* x, float to_code, int at, const CodesOfRow& to) {
  int sum = 0;
  uint32_t word = 0;
  for (int j = 0; j < 4; ++j) {
    float v = x[j] * to_code;
    v = v < 127.0f ? v : 127.0f;
    v = v > to.lowest ? v : to.lowest;
    // Adding 1.5 * 2^23 rounds half to even.
    const int code = ScalarLanes::bits(v + 12582912.0f) - 0x4b400000;
    sum += code;
    word |= (static_cast<uint32_t>(code) & 255u) << (8 * j);
  }
  if (at < to.ld) *reinterpret_cast<uint32_t*>(to.codes + at) = word;
  return sum;
}

/// Writes the codes of a span; returns the lane's sum of them.
__device__ inline int quantise_span(const Eight& x, float to_code, int span, const CodesOfRow& to) {
  return quantise_four(x.v, to_code, place(span, 0), to) +
         quantise_four(x.v + 4, to_code, place(span, 4), to);
}

/// Codes, scales and sums of a span under a8_group: eight lanes have 32 consecutive inputs.
__device__ inline void quantise_groups(const Eight& x, int span, int d, int64_t row,
                                       const Codes& out) {
  const int64_t first = row * scales_per_row(ActPrecision::kA8Group, d);
  for (int half = 0; half < 2; ++half) {
    const float* const four = x.v + 4 * half;
    const int at = place(span, 4 * half);
    int most = largest_magnitude(four, 4);
    for (int step = 1; step < kGroupLanes; step *= 2) {
      const int other = __shfl_xor_sync(kAllLanes, most, step);
      most = other > most ? other : most;
    }
    const ActScale s = act_scale(most);
    int sum = quantise_four(four, s.to_code, at, {out.codes + row * out.ld, out.ld, -127.0f});
    for (int step = 1; step < kGroupLanes; step *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    if (lane_id() % kGroupLanes != 0 || at >= d) continue;
    out.scales[first + at / kActGroup] = s.scale;
    out.sums[first + at / kActGroup] = sum;
  }
}

__device__ inline Norm norm_of(const RowNorms& norms, int64_t row) {
  return norms.norms != nullptr ? norms.norms[norms.group[row]] : norms.one;
}

__global__ void __launch_bounds__(kMaxThreads) prepare_kernel(PrepareOp op, Shape shape) {
  if (op.norm.norms == nullptr && op.norm.one.weight != nullptr && blockIdx.x == 0) {
    for (int i = 32 * static_cast<int>(threadIdx.x); i < op.d; i += 32 * kMaxThreads) {
      prefetch_l2(op.norm.one.weight + i);
    }
  }
  wait_for_previous();
  MOE_CUDA_SHARED(RowStats, stats_of, [kMaxThreads / kWarp]);
  MOE_CUDA_SHARED(int32_t, largest_of, [kMaxThreads / kWarp]);
  MOE_CUDA_SHARED(int32_t, sum_of, [kMaxThreads / kWarp]);
  const int n_rows = op.rows.counted != nullptr ? *op.rows.counted : op.rows.n;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (int64_t{blockIdx.x} * blockDim.y >= n_rows) return;
  const bool active = row < n_rows;
  const int d = active ? op.d : 0;  // other threads only take part in barriers
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  const int first_warp = static_cast<int>(threadIdx.y) * n_warps;  // of this row in the block

  const float* x = op.x + (active ? row : 0) * op.ld_x;
  bool aligned = shape.x_aligned;
  float* held = nullptr;
  if (shape.padded != 0) {
    held = reinterpret_cast<float*>(dynamic_shared()) + int64_t{threadIdx.y} * shape.padded;
    for (int i = 4 * thread; i < d; i += 4 * static_cast<int>(blockDim.x)) {
      store_four(held, i, shape.padded, true, load_four(x, i, d, aligned));
    }
    x = held;
    aligned = true;
  }
  __syncthreads();

  const Norm norm = active ? norm_of(op.norm, row) : Norm{};
  if (warp == 0) {
    const RowStats stats = row_stats(norm.kind, norm.eps, x, d);
    if (thread == 0) stats_of[threadIdx.y] = stats;
  }
  __syncthreads();
  const RowStats stats = stats_of[threadIdx.y];

  ActScale whole = {};
  if (op.a8.codes != nullptr) {
    int m = 0;
    for (int span = warp; span * kSpan < d; span += n_warps) {
      const Eight v =
          norm_span(norm, stats, read_span(x, span, d, aligned), span, d, shape.d_aligned);
      const int here = largest_magnitude(v.v, 8);
      m = here > m ? here : m;
    }
    m = __reduce_max_sync(kAllLanes, m);
    if (lane_id() == 0) largest_of[first_warp + warp] = m;
    __syncthreads();
    m = lane_id() < n_warps ? largest_of[first_warp + lane_id()] : 0;
    whole = act_scale(__reduce_max_sync(kAllLanes, m));
  }

  int64_t width = d;
  if (active && op.a8.codes != nullptr && op.a8.ld > width) width = op.a8.ld;
  if (active && op.a8_block.codes != nullptr && op.a8_block.ld > width) width = op.a8_block.ld;
  if (active && op.a8_group.codes != nullptr && op.a8_group.ld > width) width = op.a8_group.ld;
  int sum = 0;
  for (int span = warp; int64_t{span} * kSpan < width; span += n_warps) {
    const Eight v =
        norm_span(norm, stats, read_span(x, span, d, aligned), span, d, shape.d_aligned);
    if (op.normed != nullptr) {
      float* y = op.normed + row * d;
      store_four(y, place(span, 0), d, shape.d_aligned,
                 make_float4(v.v[0], v.v[1], v.v[2], v.v[3]));
      store_four(y, place(span, 4), d, shape.d_aligned,
                 make_float4(v.v[4], v.v[5], v.v[6], v.v[7]));
    }
    if (op.a8.codes != nullptr) {
      sum +=
          quantise_span(v, whole.to_code, span, {op.a8.codes + row * op.a8.ld, op.a8.ld, -128.0f});
    }
    if (op.a8_block.codes != nullptr) {
      const ActScale s = act_scale(__reduce_max_sync(kAllLanes, largest_magnitude(v.v, 8)));
      const int here = quantise_span(
          v, s.to_code, span, {op.a8_block.codes + row * op.a8_block.ld, op.a8_block.ld, -127.0f});
      const int total = __reduce_add_sync(kAllLanes, here);
      if (lane_id() == 0 && span * kSpan < d) {
        const int64_t at = row * scales_per_row(ActPrecision::kA8Block, d) + span;
        op.a8_block.scales[at] = s.scale;
        op.a8_block.sums[at] = total;
      }
    }
    if (op.a8_group.codes != nullptr) quantise_groups(v, span, d, row, op.a8_group);
  }
  if (op.a8.codes == nullptr) return;
  sum = __reduce_add_sync(kAllLanes, sum);
  if (lane_id() == 0) sum_of[first_warp + warp] = sum;
  __syncthreads();
  if (!active || warp != 0) return;
  sum = __reduce_add_sync(kAllLanes, lane_id() < n_warps ? sum_of[first_warp + lane_id()] : 0);
  if (thread == 0) {
    op.a8.scales[row] = whole.scale;
    op.a8.sums[row] = sum;
  }
}

}  // namespace

cudaError_t prepare_rows(cudaStream_t stream, const PrepareOp& op) {
  if (op.rows.n <= 0) return cudaSuccess;
  const int spans = (op.d + kSpan - 1) / kSpan;
  const int warps = spans < kMaxThreads / kWarp ? spans : kMaxThreads / kWarp;
  int rows = warps < 4 ? 4 / warps : 1;  // per block
  if (rows > op.rows.n) rows = op.rows.n;
  Shape shape;
  shape.padded = op.d <= kMaxHeld ? (op.d + 3) / 4 * 4 : 0;
  shape.x_aligned = rows_aligned(op.x, op.ld_x);
  shape.d_aligned = rows_aligned(op.normed, op.d) && rows_aligned(op.norm.one.weight, 4) &&
                    rows_aligned(op.norm.one.bias, 4) && op.norm.norms == nullptr;
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>((op.rows.n + rows - 1) / rows));
  grid.threads = dim3(static_cast<unsigned>(warps * kWarp), static_cast<unsigned>(rows));
  grid.shared_bytes = static_cast<size_t>(shape.padded) * static_cast<size_t>(rows) * sizeof(float);
  return launch(prepare_kernel, grid, stream, op, shape);
}

}  // namespace moe::cuda
