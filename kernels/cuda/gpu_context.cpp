// SPDX-License-Identifier: MIT
// Finds the driver's functions at run time, retains the GPU's primary context, and makes it current
// around each call.
#include "kernels/cuda/gpu_context.h"

namespace moe::cuda {
namespace {

// Both use the same numbers.
cudaError_t as_error(CUresult result) { return static_cast<cudaError_t>(result); }

// Finds a function of the driver, which the module is not linked to.
template <class F>
Status find(const char* name, F* out) {
  constexpr unsigned kVersion = 12000;  // of CUDA, whose declaration F is
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
#else
  (void)kVersion;
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  MOE_TRY(cuda_status(error, name));
  if (found == nullptr) {
    return Status::error(MOE_ERR_DEVICE, "the NVIDIA driver has no function %s", name);
  }
  *out = reinterpret_cast<F>(found);
  return {};
}

}  // namespace

Status GpuContext::open(int32_t index) {
  CUresult (*get)(CUdevice*, int) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  MOE_TRY(find("cuDeviceGet", &get));
  MOE_TRY(find("cuDevicePrimaryCtxRetain", &retain));
  MOE_TRY(find("cuCtxPushCurrent", &push_));
  MOE_TRY(find("cuCtxPopCurrent", &pop_));
  CUdevice device = 0;
  MOE_TRY(cuda_status(as_error(get(&device, index)), "choosing the GPU"));
  return cuda_status(as_error(retain(&context_, device)), "making a context on the GPU");
}

Status GpuContext::enter() const {
  if (context_ == nullptr) return Status::error(MOE_ERR_DEVICE, "the GPU has no context");
  return cuda_status(as_error(push_(context_)), "choosing the GPU, or earlier work");
}

void GpuContext::leave() const {
  CUcontext context = nullptr;
  (void)pop_(&context);
}

}  // namespace moe::cuda
