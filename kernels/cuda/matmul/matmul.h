// SPDX-License-Identifier: MIT
#pragma once
// Matrix products with a choice of kernels, for tests and benchmarks.

#include "kernels/cuda/ops.h"

namespace moe::cuda {

/// Families of kernels, all with the same result. A family that does not support a matrix product
/// falls back to kAny, which supports all; kLibrary (MatmulOp::library for any size) falls back to
/// kAuto.
enum class ProductKernels : uint8_t { kAuto, kAny, kFewRows, kManyRows, kManyRowsWide, kLibrary };

/// True if kFewRows, kManyRows and kManyRowsWide multiply codes on tensor cores for the matrix.
bool has_mma_kernels(const Matrix& m);

cudaError_t matmul_with(cudaStream_t stream, const MatmulOp& op, ProductKernels kernels);
cudaError_t gated_matmul_with(cudaStream_t stream, const GatedOp& op, ProductKernels kernels);

}  // namespace moe::cuda
