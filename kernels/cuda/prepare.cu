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

__device__ inline int largest_magnitude(const Eight& x) {
  int m = 0;
  for (const float v : x.v) {
    const int bits = ScalarLanes::bits(v) & 0x7fffffff;
    m = bits > m ? bits : m;
  }
  return m;
}

/// Writes the codes of a span within the row; returns the lane's sum of them.
__device__ inline int quantise_span(const Eight& x, float to_code, float lowest, int span,
                                    int64_t ld, int8_t* codes) {
  int sum = 0;
  for (int half = 0; half < 2; ++half) {
    uint32_t word = 0;
    for (int j = 0; j < 4; ++j) {
      float v = x.v[4 * half + j] * to_code;
      v = v < 127.0f ? v : 127.0f;
      v = v > lowest ? v : lowest;
      // Adding 1.5 * 2^23 rounds half to even.
      const int code = ScalarLanes::bits(v + 12582912.0f) - 0x4b400000;
      sum += code;
      word |= (static_cast<uint32_t>(code) & 255u) << (8 * j);
    }
    const int at = place(span, 4 * half);
    if (at < ld) *reinterpret_cast<uint32_t*>(codes + at) = word;
  }
  return sum;
}

__device__ inline Norm norm_of(const RowNorms& norms, int64_t row) {
  return norms.norms != nullptr ? norms.norms[norms.group[row]] : norms.one;
}

__global__ void __launch_bounds__(kMaxThreads) prepare_kernel(PrepareOp op, Shape shape) {
  __shared__ RowStats stats_of[kMaxThreads / kWarp];
  __shared__ int32_t largest_of[kMaxThreads / kWarp];
  __shared__ int32_t sum_of[kMaxThreads / kWarp];
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
      const int here = largest_magnitude(v);
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
      sum += quantise_span(v, whole.to_code, -128.0f, span, op.a8.ld, op.a8.codes + row * op.a8.ld);
    }
    if (op.a8_block.codes != nullptr) {
      const ActScale s = act_scale(__reduce_max_sync(kAllLanes, largest_magnitude(v)));
      const int here = quantise_span(v, s.to_code, -127.0f, span, op.a8_block.ld,
                                     op.a8_block.codes + row * op.a8_block.ld);
      const int total = __reduce_add_sync(kAllLanes, here);
      if (lane_id() == 0 && span * kSpan < d) {
        const int64_t at = row * ((d + kActBlock - 1) / kActBlock) + span;
        op.a8_block.scales[at] = s.scale;
        op.a8_block.sums[at] = total;
      }
    }
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
