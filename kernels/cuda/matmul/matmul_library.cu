// SPDX-License-Identifier: MIT
// Preparation and completion of library products: plain weight rows before, scales, bias and sum
// after.

#include "kernels/cuda/matmul/decode.cuh"
#include "kernels/cuda/matmul/matmul.cuh"
#include "kernels/cuda/matmul/product_library.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCols = 16;          // inputs of a row unpacked per thread
constexpr int kTokensAThread = 8;  // tokens finished per thread

struct UnpackArgs {
  Matrix m;
  int32_t first_tile;
  int32_t n_pieces;  // per row: ld / kCols
  int64_t n;         // active threads
  int8_t* out;
};

/// Inputs 16 piece .. of row r of a tile.
struct Ternary2Row {
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t piece, int32_t r,
                                             int32_t cols) {
    if (piece * kCols >= cols) return {0, 0, 0, 0};
    const uint32_t w =
        *reinterpret_cast<const uint32_t*>(tile + int64_t{piece} * kBlockBytes + r * 4);
    return {signed_codes(w), signed_codes(w >> 2), signed_codes(w >> 4), signed_codes(w >> 6)};
  }
};
struct Int8Row {
  static __device__ __forceinline__ uint32_t word(const uint8_t* tile, int32_t block, int32_t r,
                                                  int32_t cols) {
    if (block * 4 >= cols) return 0;
    return *reinterpret_cast<const uint32_t*>(tile + int64_t{block} * kBlockBytes + r * 4);
  }
  static __device__ __forceinline__ uint4 at(const uint8_t* tile, int32_t piece, int32_t r,
                                             int32_t cols) {
    return {word(tile, 4 * piece, r, cols), word(tile, 4 * piece + 1, r, cols),
            word(tile, 4 * piece + 2, r, cols), word(tile, 4 * piece + 3, r, cols)};
  }
};

/// Half a warp has 16 rows of the same inputs: it reads whole blocks and, with the other half (the
/// next 16 inputs), writes whole sectors.
template <class Format>
__global__ void unpack(const UnpackArgs a) {
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n) return;
  const auto r = static_cast<int32_t>(i % kTileRows);
  const auto piece = static_cast<int32_t>(i / kTileRows % a.n_pieces);
  const auto tile = static_cast<int32_t>(i / kTileRows / a.n_pieces);
  const uint8_t* from = a.m.tiles + (a.first_tile + tile) * a.m.tile_stride;
  const int64_t row = int64_t{tile} * kTileRows + r;
  *reinterpret_cast<uint4*>(a.out + (row * a.n_pieces + piece) * kCols) =
      Format::at(from, piece, r, a.m.cols);
}

__global__ void finish_all(const FinishOp a) {
  wait_for_previous();
  const auto row = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x);  // of the panel
  const Matrix& m = a.out.weight.matrix;
  if (row >= a.n_rows || a.first_row + row >= m.rows) return;
  const float sw = weight_scale(m, a.first_row + row, 0);
  const float bias = bias_of(a.out.weight, a.first_row + row);
  const auto first = static_cast<int32_t>(blockIdx.x * kTokensAThread);
  MOE_CUDA_UNROLL
  for (int i = 0; i < kTokensAThread; ++i) {
    const int32_t token = first + i;
    if (token >= a.tokens) break;
    const int32_t sum = a.sums[int64_t{token} * a.n_rows + row];
    const float sx = a.act_scales[a.first_token + token];
    const float v = static_cast<float>(sum) * (sx * sw) + bias;
    finish(a.out, v, a.out.y + (a.first_token + token) * a.out.ld_y + a.first_row + row);
  }
}

}  // namespace

cudaError_t unpack_rows(cudaStream_t stream, const Matrix& m, int32_t first_row, int32_t n_rows,
                        int8_t* out, int32_t ld) {
  UnpackArgs args;
  args.m = m;
  args.first_tile = first_row / kTileRows;
  args.n_pieces = ld / kCols;
  args.n = int64_t{n_rows} * args.n_pieces;
  args.out = out;
  const Grid grid{dim3(static_cast<unsigned>((args.n + kThreads - 1) / kThreads)), kThreads, 0};
  return m.format == FormatId::kTernary2 ? launch(unpack<Ternary2Row>, grid, stream, args)
                                         : launch(unpack<Int8Row>, grid, stream, args);
}

cudaError_t finish_sums(cudaStream_t stream, const FinishOp& op) {
  const auto chunks = static_cast<unsigned>((op.tokens + kTokensAThread - 1) / kTokensAThread);
  const auto columns = static_cast<unsigned>((op.n_rows + kThreads - 1) / kThreads);
  return launch(finish_all, {dim3(chunks, columns), kThreads, 0}, stream, op);
}

}  // namespace moe::cuda
