#pragma once
// Starting a kernel, and errors of CUDA as statuses.

#include "kernels/cuda/platform.h"
#include "src/base/status.h"

namespace moe::cuda {

/// MOE_ERR_MEMORY for want of memory, MOE_ERR_DEVICE for everything else; `what` failed.
Status cuda_status(cudaError_t error, const char* what);

#define MOE_CUDA_TRY(call)                                                  \
  do {                                                                      \
    if (const cudaError_t moe_error_ = (call); moe_error_ != cudaSuccess) { \
      return ::moe::cuda::cuda_status(moe_error_, #call);                   \
    }                                                                       \
  } while (false)

struct Grid {
  dim3 blocks = 1;
  dim3 threads = 1;
  size_t shared_bytes = 0;  // dynamic; above 48 KiB the kernel's limit is raised first
};

#if defined(MOE_CUDA_EMULATOR) || defined(__CUDACC__)
/// Starts `kernel` behind what is in the stream. An empty grid does nothing.
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), const Grid& grid, cudaStream_t stream, const A&... args) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return cudaSuccess;
#if defined(MOE_CUDA_EMULATOR)
  return emulator::launch(stream, grid.blocks, grid.threads, grid.shared_bytes,
                          [=] { kernel(static_cast<P>(args)...); });
#else
  if (grid.shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(grid.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
#endif
}
#endif

}  // namespace moe::cuda
