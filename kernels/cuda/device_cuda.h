#pragma once
// The CUDA device: every operation of kernels/device.h on one GPU.
//
// Results are the same in every run. Integer sums, norms, quantisation, activations and routers
// give the CPU's bits; attention and products with float weights differ in the order of their sums.

#include "kernels/cuda/matmul/product_options.h"
#include "kernels/device.h"

namespace moe::cuda {

/// Where an expert that is missing on the GPU is computed, if the CPU can: as measured, or for
/// tests.
enum class MissingExperts : uint8_t { kMeasured, kOnGpu, kOnCpu, kInTurn };

struct CudaOptions {
  int32_t index = 0;          // which GPU
  uint64_t memory_limit = 0;  // bytes that may be allocated on it; 0: 15/16 of what is free
  ProductLibraryOptions library = {};  // when cuBLASLt is used
  Device* cpu = nullptr;  // computes experts that are missing; null: they are brought in
  MissingExperts missing = MissingExperts::kMeasured;
};

/// MOE_ERR_DEVICE when there is no such GPU, its driver is too old, or it is older than compute
/// capability 8.0. The allocator must outlive the device, which any thread may use.
Result<Device*> open_cuda_device(const CudaOptions& options, const Allocator& allocator);
/// All its streams must be closed. Null is allowed.
void close_cuda_device(Device* device);

}  // namespace moe::cuda
