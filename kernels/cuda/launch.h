// SPDX-License-Identifier: MIT
#pragma once
// Launching kernels, and CUDA errors as statuses.

#include "kernels/cuda/platform.h"
#include "src/base/status.h"

namespace moe::cuda {

/// MOE_ERR_MEMORY for lack of memory, MOE_ERR_DEVICE for other errors; `what` failed.
Status cuda_status(cudaError_t error, const char* what);

#define MOE_CUDA_TRY(call)                                                  \
  do {                                                                      \
    if (const cudaError_t moe_error_ = (call); moe_error_ != cudaSuccess) { \
      return ::moe::cuda::cuda_status(moe_error_, #call);                   \
    }                                                                       \
  } while (false)

/// Blocks of a grid along y. The emulator's grids have fewer, as it takes its time for each block.
#if defined(MOE_CUDA_EMULATOR)
inline constexpr int32_t kMostGridY = emulator::kMostGridY;
#else
inline constexpr int32_t kMostGridY = 65535;
#endif

struct Grid {
  dim3 blocks = 1;
  dim3 threads = 1;
  size_t shared_bytes = 0;  // dynamic; where 48 KiB are not enough the kernel's limit is raised
};

#if !defined(MOE_CUDA_EMULATOR) && defined(__CUDACC__)
/// True if the kernels' code for this GPU waits for the kernels before it (wait_for_previous()).
/// All files are compiled for the same architectures.
bool code_waits();

/// Allows a kernel all the shared memory of a block on this GPU: never less, since another thread
/// may be launching it with another size.
inline cudaError_t allow_shared(const void* kernel, size_t bytes) {
  cudaFuncAttributes found;
  if (const cudaError_t e = cudaFuncGetAttributes(&found, kernel); e != cudaSuccess) return e;
  const size_t usual = 48 * 1024;  // static and dynamic together
  if (found.sharedSizeBytes + bytes <= usual) return cudaSuccess;
  int device = 0;
  int most = 0;
  if (const cudaError_t e = cudaGetDevice(&device); e != cudaSuccess) return e;
  const cudaError_t e =
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (e != cudaSuccess) return e;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              most - static_cast<int>(found.sharedSizeBytes));
}
#endif

#if defined(MOE_CUDA_EMULATOR) || defined(__CUDACC__)
/// Enqueues `kernel`. An empty grid does nothing.
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), const Grid& grid, cudaStream_t stream, const A&... args) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return cudaSuccess;
#if defined(MOE_CUDA_EMULATOR)
  return emulator::launch(stream, grid.blocks, grid.threads, grid.shared_bytes,
                          [=] { kernel(static_cast<P>(args)...); });
#else
  if (grid.shared_bytes > 16 * 1024) {  // such kernels have at most 32 KiB of static shared memory
    const cudaError_t error =
        allow_shared(reinterpret_cast<const void*>(kernel), grid.shared_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  // The kernel starts while the one before it still runs, and waits for it itself.
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = code_waits() ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
#endif
}
#endif

}  // namespace moe::cuda
