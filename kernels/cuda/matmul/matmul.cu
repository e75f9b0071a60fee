// SPDX-License-Identifier: MIT
// Selects the kernels of a matrix product.

#include "kernels/cuda/matmul/element.h"
#include "kernels/cuda/matmul/matmul.cuh"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/product_library.h"

namespace moe::cuda {
namespace {

/// True if one launch can compute both.
bool alike(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.act == b.act && a.scale_kind == b.scale_kind &&
         a.group == b.group && a.cols == b.cols;
}

/// True if mma kernels support it.
bool multiplies_codes(const ProductArgs& args) {
  const Matrix& m = args.outs[0].weight.matrix;
  return has_mma_kernels(m) && (!args.gated || alike(m, args.gate.weight.matrix));
}

/// Blocks that occupy a large GPU.
constexpr int64_t kWantedBlocks = 96;

/// Inputs up to which matmul_floats_narrow.cu also computes few rows: two rounds of its warps. The
/// bound itself was not measured.
constexpr int32_t kShortRow = 512;

/// True if matmul_floats.cu supports it, and matmul_floats_narrow.cu if the weights are floats.
bool multiplies_floats(const ProductArgs& args) {
  const Matrix& m = args.outs[0].weight.matrix;
  return !args.activated && m.act == ActPrecision::kF32 && m.scale_kind != ScaleKind::kGroup;
}

bool has_float_weights(const ProductArgs& args) {
  const FormatId format = args.outs[0].weight.matrix.format;
  return format == FormatId::kF32 || format == FormatId::kBf16 || format == FormatId::kF16;
}

/// True if the grids of all kernels can count the tiles of all outs. Only product_any() splits
/// them.
bool fits_a_grid(const ProductArgs& args) {
  int64_t pairs = 0;
  for (int32_t i = 0; i < args.n_outs; ++i) {
    pairs += pairs_of(args.outs[i].weight.matrix, args.gated);
  }
  return pairs <= kMostGridY;
}

/// Selects by rows per group, if there are enough to fill the GPU. Kernels for few rows read the
/// weights again for every 32 (8 with scales in the tile), but use more blocks.
ProductKernels choose(const ProductArgs& args) {
  const int64_t groups = args.rows.group != nullptr ? args.rows.max_groups : 1;
  const int64_t rows = args.rows.rows.n / (groups > 0 ? groups : 1);
  if (!multiplies_codes(args)) {
    const bool floats = multiplies_floats(args) && has_float_weights(args);
    if (floats && (rows > 32 || args.outs[0].weight.matrix.cols <= kShortRow)) {
      return product_floats_blocks(args) < kWantedBlocks ? ProductKernels::kFewRows
                                                         : ProductKernels::kManyRows;
    }
    return rows > 32 ? ProductKernels::kManyRows : ProductKernels::kAny;
  }
  const int64_t blocks = product_many_blocks(args);
  if (rows <= 32 || blocks < kWantedBlocks) return ProductKernels::kFewRows;
  return rows >= 96 && blocks >= 4 * kWantedBlocks ? ProductKernels::kManyRowsWide
                                                   : ProductKernels::kManyRows;
}

cudaError_t start(cudaStream_t stream, const ProductArgs& args, ProductKernels kernels) {
  if (!fits_a_grid(args)) return product_any(stream, args);
  if (kernels == ProductKernels::kAuto || kernels == ProductKernels::kLibrary) {
    kernels = choose(args);
  }
  if (!multiplies_codes(args)) {
    if (kernels == ProductKernels::kAny || !multiplies_floats(args)) {
      return product_any(stream, args);
    }
    return kernels == ProductKernels::kFewRows ? product_floats_narrow(stream, args)
                                               : product_floats(stream, args);
  }
  const bool grouped = has_group_scales(args.outs[0].weight.matrix);
  switch (kernels) {
    case ProductKernels::kFewRows:
      return grouped ? product_few_groups(stream, args) : product_few(stream, args);
    case ProductKernels::kManyRows:
    case ProductKernels::kManyRowsWide:
      return grouped ? product_many_groups(stream, args)
                     : product_many(stream, args, kernels == ProductKernels::kManyRowsWide);
    case ProductKernels::kAuto:
    case ProductKernels::kLibrary:
    case ProductKernels::kAny:
      break;
  }
  return product_any(stream, args);
}

/// Offers matrix products to the library. done[i]: it computed op.outs[i].
cudaError_t ask_library(cudaStream_t stream, const MatmulOp& op, ProductKernels kernels,
                        bool (&done)[kMaxMatmulOuts]) {
  const bool always = kernels == ProductKernels::kLibrary;
  const RowGroups& rows = op.rows;
  if (op.library == nullptr || (!always && kernels != ProductKernels::kAuto) ||
      rows.group != nullptr || rows.input_row != nullptr || rows.rows.counted != nullptr) {
    return cudaSuccess;
  }
  for (int32_t i = 0; i < op.n_outs; ++i) {
    const cudaError_t error =
        op.library->multiply(stream, rows.rows.n, op.in, op.outs[i], always, &done[i]);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

bool has_mma_kernels(const Matrix& m) {
  return m.act != ActPrecision::kF32 &&
         (m.format == FormatId::kTernary2 || m.format == FormatId::kInt8 || has_group_mma(m));
}

cudaError_t matmul_with(cudaStream_t stream, const MatmulOp& op, ProductKernels kernels) {
  if (op.rows.rows.n == 0) return cudaSuccess;
  bool done[kMaxMatmulOuts] = {};
  if (const cudaError_t error = ask_library(stream, op, kernels, done); error != cudaSuccess) {
    return error;
  }
  for (int32_t i = 0; i < op.n_outs; ++i) {
    if (done[i]) continue;
    ProductArgs args;
    args.rows = op.rows;
    args.in = op.in;
    for (int32_t j = i; j < op.n_outs; ++j) {
      if (done[j] || !alike(op.outs[i].weight.matrix, op.outs[j].weight.matrix)) continue;
      args.outs[args.n_outs++] = op.outs[j];
      done[j] = true;
    }
    if (const cudaError_t error = start(stream, args, kernels); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t gated_matmul_with(cudaStream_t stream, const GatedOp& op, ProductKernels kernels) {
  if (op.rows.rows.n == 0) return cudaSuccess;
  ProductArgs args;
  args.rows = op.rows;
  args.in = op.in;
  args.n_outs = 1;
  args.outs[0].weight = op.up.weight;
  args.outs[0].table = op.up.table;
  args.outs[0].y = op.hidden;
  args.outs[0].ld_y = op.ld_hidden;
  args.activated = true;
  args.gated = !op.gate.weight.matrix.empty() || op.gate.table != nullptr;
  args.gate = op.gate;
  args.act = op.act;
  args.n_positive = op.n_positive;
  return start(stream, args, kernels);
}

cudaError_t matmul(cudaStream_t stream, const MatmulOp& op) {
  return matmul_with(stream, op, ProductKernels::kAuto);
}
cudaError_t gated_matmul(cudaStream_t stream, const GatedOp& op) {
  return gated_matmul_with(stream, op, ProductKernels::kAuto);
}

}  // namespace moe::cuda
