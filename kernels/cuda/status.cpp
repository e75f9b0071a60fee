// SPDX-License-Identifier: MIT
// Turns CUDA's error codes into statuses; an old driver and a missing one are told apart.
#include "kernels/cuda/launch.h"

namespace moe::cuda {
namespace {

// The runtime gives the same error for an old driver and for none.
Status bad_driver() {
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return Status::error(MOE_ERR_DEVICE, "no NVIDIA driver is installed");
  }
  (void)cudaRuntimeGetVersion(&runtime);
  return Status::error(MOE_ERR_DEVICE,
                       "the NVIDIA driver is for CUDA %d.%d, libmoe_cuda needs %d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

}  // namespace

Status cuda_status(cudaError_t error, const char* what) {
  switch (error) {
    case cudaSuccess:
      return {};
    case cudaErrorMemoryAllocation:
      return Status::error(MOE_ERR_MEMORY, "out of GPU memory: %s", what);
    case cudaErrorNoDevice:
      return Status::error(MOE_ERR_DEVICE, "no GPU that CUDA can use");
    case cudaErrorInsufficientDriver:
      return bad_driver();
    default:
      return Status::error(MOE_ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorName(error),
                           cudaGetErrorString(error));
  }
}

}  // namespace moe::cuda
