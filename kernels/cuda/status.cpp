#include "kernels/cuda/launch.h"

namespace moe::cuda {

Status cuda_status(cudaError_t error, const char* what) {
  switch (error) {
    case cudaSuccess:
      return {};
    case cudaErrorMemoryAllocation:
      return Status::error(MOE_ERR_MEMORY, "out of GPU memory: %s", what);
    case cudaErrorNoDevice:
      return Status::error(MOE_ERR_DEVICE, "no GPU that CUDA can use");
    case cudaErrorInsufficientDriver:
      return Status::error(MOE_ERR_DEVICE,
                           "the NVIDIA driver is older than the CUDA runtime of libmoe_cuda");
    default:
      return Status::error(MOE_ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorName(error),
                           cudaGetErrorString(error));
  }
}

}  // namespace moe::cuda
