// SPDX-License-Identifier: MIT
#pragma once
// Shared by the kernels of matrix products: arguments, the rows and matrix of a block, and the
// final operations before storing a sum.
//
// Grids: x counts chunks of output rows (of all groups), y counts tiles of weights (of all outs).

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/ops.h"

namespace moe::cuda {

/// Arguments of one launch: outs that agree in everything that selects a kernel.
struct ProductArgs {
  RowGroups rows;
  MatmulInput in;
  MatmulOut outs[kMaxMatmulOuts];
  int32_t first_y[kMaxMatmulOuts] = {};  // first blockIdx.y of each out
  int32_t n_outs = 0;
  int32_t y = 0;      // matmul_any.cu: the launch's first block
  int32_t split = 1;  // warps sharing a tile's inputs

  // hidden layers: outs[0] is `up`, and its y the activations
  bool activated = false;
  bool gated = false;
  MatmulOut gate;
  ActivationConfig act;
  uint64_t* n_positive = nullptr;
};

/// Output rows [begin, end) of a block, and the index of their matrix.
struct RowChunk {
  int32_t begin;
  int32_t end;
  int32_t matrix;
};

/// Upper bound of the chunks that find_chunk() distinguishes.
inline int64_t n_chunks(const RowGroups& rows, int32_t chunk) {
  if (rows.group == nullptr) return (int64_t{rows.rows.n} + chunk - 1) / chunk;
  return int64_t{rows.rows.n} / chunk + rows.max_groups;
}

/// The chunk with number `index`; false if there is none. All lanes of a warp call it together.
/// Chunk c of group g has the number begin[g] / kChunk + g + c: unique and ascending.
template <int kChunk>
__device__ __forceinline__ bool find_chunk(const RowGroups& rows, int32_t index, RowChunk* out) {
  if (rows.group == nullptr) {
    int32_t n = rows.rows.n;
    if (rows.rows.counted != nullptr && *rows.rows.counted < n) n = *rows.rows.counted;
    out->begin = index * kChunk;
    out->end = out->begin + kChunk < n ? out->begin + kChunk : n;
    out->matrix = 0;
    return out->begin < out->end;
  }
  const int32_t lane = static_cast<int32_t>(threadIdx.x % kWarp);
  int32_t group = 0;  // the last one whose first chunk is at or before `index`
  int32_t begin;
  int32_t end;
  if (rows.max_groups < kWarp) {  // as in a decode step: all loads at once
    const int32_t first = lane <= rows.max_groups ? rows.begin[lane] : 0;
    const int32_t n_groups = rows.n_groups != nullptr ? *rows.n_groups : rows.max_groups;
    if (n_groups <= 0) return false;
    const bool before = lane < n_groups && first / kChunk + lane <= index;
    group = __popc(__ballot_sync(~0u, before)) - 1;
    begin = __shfl_sync(~0u, first, group);
    end = __shfl_sync(~0u, first, group + 1);
  } else {
    const int32_t n_groups = rows.n_groups != nullptr ? *rows.n_groups : rows.max_groups;
    for (int32_t span = n_groups; span > 1;) {
      const int32_t step = (span + kWarp - 1) / kWarp;
      const int32_t candidate = group + lane * step;
      const bool before = lane * step < span && rows.begin[candidate] / kChunk + candidate <= index;
      group += (__popc(__ballot_sync(~0u, before)) - 1) * step;
      span = step < n_groups - group ? step : n_groups - group;
    }
    if (n_groups <= 0) return false;
    begin = rows.begin[group];
    end = rows.begin[group + 1];
  }
  out->begin = begin + (index - begin / kChunk - group) * kChunk;
  out->end = out->begin + kChunk < end ? out->begin + kChunk : end;
  out->matrix = rows.group[group];
  return out->begin < out->end;
}

/// True if a block's weights do not depend on the kernels before: it may load them before
/// wait_for_previous().
__device__ __forceinline__ bool weights_are_known(const RowGroups& rows) {
  return rows.group == nullptr && rows.rows.counted == nullptr;
}

/// Brings a tile of weights to the L2 cache. All threads.
__device__ __forceinline__ void prefetch_tile(const Matrix& m, int32_t tile) {
  constexpr int64_t kLine = 128;
  for (int64_t i = threadIdx.x * kLine; i < m.tile_stride; i += blockDim.x * kLine) {
    prefetch_l2(m.tiles + tile * m.tile_stride + i);
  }
}

__device__ __forceinline__ int32_t input_row(const RowGroups& rows, int32_t row) {
  return rows.input_row != nullptr ? rows.input_row[row] : row;
}

/// The out of `index`, a blockIdx.y. Selected by comparisons: a run-time index would put the
/// arguments in local memory.
__device__ __forceinline__ MatmulOut find_out(const ProductArgs& a, int32_t index, int32_t* y) {
  MatmulOut out = a.outs[0];
  *y = index;
  for (int i = 1; i < kMaxMatmulOuts; ++i) {
    if (i >= a.n_outs || index < a.first_y[i]) continue;
    out = a.outs[i];
    *y = index - a.first_y[i];
  }
  return out;
}

/// The weight for a group of rows. Shape, format and kinds are those of out.weight.
__device__ __forceinline__ Weight find_weight(const MatmulOut& out, int32_t matrix) {
  Weight w = out.weight;
  if (out.table != nullptr) {
    const Weight& own = out.table[matrix];
    w.matrix.tiles = own.matrix.tiles;
    w.matrix.scales = own.matrix.scales;
    w.bias = own.bias;
  }
  return w;
}

/// Activation scales of an input row.
__device__ __forceinline__ int32_t n_act_scales(const Matrix& m) {
  const int32_t n = inputs_per_scale(m.act, m.cols);
  return (m.cols + n - 1) / n;
}

__device__ __forceinline__ Codes codes_of(const MatmulInput& in, ActPrecision act) {
  if (act == ActPrecision::kA8) return in.a8;
  return act == ActPrecision::kA8Group ? in.a8_group : in.a8_block;
}

/// Scale of a row; `group` counts groups of inputs (0 for other kinds).
__device__ __forceinline__ float weight_scale(const Matrix& m, int32_t row, int32_t group) {
  if (m.scale_kind == ScaleKind::kTensor) return m.scales[0];
  if (m.scale_kind == ScaleKind::kRow) return m.scales[row];
  if (m.scale_kind == ScaleKind::kNone) return 1.0f;
  const int32_t n_groups = (m.cols + m.group - 1) / m.group;
  return m.scales[(int64_t{row / kTileRows} * n_groups + group) * kTileRows + row % kTileRows];
}

/// Added if there is no bias: preserves every number, including -0.
inline constexpr float kNoBias = -0.0f;
__device__ __forceinline__ float bias_of(const Weight& w, int32_t row) {
  return w.bias != nullptr ? w.bias[row] : kNoBias;
}

/// Stores or accumulates scale * v; v includes its bias.
__device__ __forceinline__ void finish(const MatmulOut& out, float v, float* y) {
  if (out.accumulate) {
    v = fused(out.scale, v, *y);
  } else if (out.scale != 1.0f) {
    v = out.scale * v;
  }
  *y = v;
}

/// Adds the counts of a warp's lanes.
__device__ __forceinline__ void add_positive(uint64_t* total, uint32_t n) {
  if (total == nullptr) return;
  const uint32_t sum = __reduce_add_sync(~0u, n);
  if (threadIdx.x % kWarp == 0 && sum != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(total), static_cast<unsigned long long>(sum));
  }
}

inline int32_t n_tiles(const Matrix& m) { return (m.rows + kTileRows - 1) / kTileRows; }

/// Pairs of tiles of one matrix, or of gate and up.
inline int64_t pairs_of(const Matrix& m, bool gated) {
  return gated ? n_tiles(m) : (n_tiles(m) + 1) / 2;
}

/// Numbers the blocks of all outs; returns their count.
inline int32_t place_outs(ProductArgs& args, int32_t pairs_per_block) {
  int64_t y = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    args.first_y[i] = static_cast<int32_t>(y);
    const int64_t pairs = pairs_of(args.outs[i].weight.matrix, args.gated);
    y += (pairs + pairs_per_block - 1) / pairs_per_block;
  }
  return static_cast<int32_t>(y);
}

/// The families of kernels (kernels/cuda/README.md), one per file.
cudaError_t product_any(cudaStream_t stream, ProductArgs args);
/// ternary2 and int8 with int8 activations; gate and up alike.
cudaError_t product_few(cudaStream_t stream, ProductArgs args);
/// The same; 64 rows of a group per block, or 128 if the scales allow it.
cudaError_t product_many(cudaStream_t stream, ProductArgs args, bool wide);
/// The same for formats with scales in the tile.
cudaError_t product_few_groups(cudaStream_t stream, ProductArgs args);
cudaError_t product_many_groups(cudaStream_t stream, ProductArgs args);
/// Float activations, no activation function, no group scales.
cudaError_t product_floats(cudaStream_t stream, ProductArgs args);
/// Number of blocks of product_floats().
int64_t product_floats_blocks(const ProductArgs& args);
/// The same for few outputs; float weights.
cudaError_t product_floats_narrow(cudaStream_t stream, ProductArgs args);
/// Estimated number of 64-row blocks that product_many() keeps busy.
int64_t product_many_blocks(const ProductArgs& args);

}  // namespace moe::cuda
