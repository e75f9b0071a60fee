// SPDX-License-Identifier: MIT
#pragma once
// The CUDA device: every operation of kernels/device.h on one GPU.
//
// Results are identical in every run. Integer sums, norms, quantisation, activations and routers
// are bit-identical to the CPU; attention and matrix products with float weights sum in another
// order.

#include "kernels/cuda/matmul/product_options.h"
#include "kernels/device.h"
#include "src/base/log.h"

namespace moe::cuda {

/// Where an expert that is missing on the GPU is computed, if the CPU can compute it: by
/// measurement, or fixed for tests.
enum class MissingExperts : uint8_t { kMeasured, kOnGpu, kOnCpu, kInTurn };

struct CudaOptions {
  int32_t index = 0;          // which GPU
  uint64_t memory_limit = 0;  // bytes that may be allocated; 0, or above: 15/16 of what is free
  ProductLibraryOptions library = {};  // when cuBLASLt is used
  Device* cpu = nullptr;               // computes missing experts; null: they are uploaded
  MissingExperts missing = MissingExperts::kMeasured;
  Logger logger = {};
};

/// MOE_ERR_DEVICE if there is no such GPU, its driver is too old, its compute capability is below
/// 8.0, or the module has no code for it. The allocator must outlive the device. Any thread may use
/// the device; the thread's own CUDA context is current again after each call, of a step after its
/// sync().
Result<Device*> open_cuda_device(const CudaOptions& options, const Allocator& allocator);
/// All its streams must be closed. Null is allowed.
void close_cuda_device(Device* device);

}  // namespace moe::cuda
