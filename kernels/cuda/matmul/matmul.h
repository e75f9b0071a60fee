#pragma once
// The matrix products with a say in which kernels compute them, for tests and benchmarks.

#include "kernels/cuda/ops.h"

namespace moe::cuda {

/// Families of kernels, all with the same answer. A family that cannot do a product leaves it to
/// kAny, which can do all; kLibrary (MatmulOp::library, whatever the sizes) leaves it to kAuto.
enum class ProductKernels : uint8_t { kAuto, kAny, kFewRows, kManyRows, kManyRowsWide, kLibrary };

cudaError_t matmul_with(cudaStream_t stream, const MatmulOp& op, ProductKernels kernels);
cudaError_t gated_matmul_with(cudaStream_t stream, const GatedOp& op, ProductKernels kernels);

}  // namespace moe::cuda
