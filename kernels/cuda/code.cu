// SPDX-License-Identifier: MIT
// Whether the GPU can run this module's kernels. All files are compiled for the same architectures.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"

namespace moe::cuda {
namespace {

#if defined(__CUDA_ARCH_LIST__)
constexpr int kBuiltFor[] = {__CUDA_ARCH_LIST__};  // 800 is 8.0
#else
constexpr int kBuiltFor[] = {800, 900};  // the emulator's
#endif

__global__ void any_kernel() {}

}  // namespace

cudaError_t load_code() {
  cudaFuncAttributes found;
  return cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(any_kernel));
}

#if !defined(MOE_CUDA_EMULATOR)
bool code_waits() {
  cudaFuncAttributes found;
  return cudaFuncGetAttributes(&found, reinterpret_cast<const void*>(any_kernel)) == cudaSuccess &&
         found.ptxVersion >= 90;
}
#endif

std::span<const int> built_for() { return kBuiltFor; }

}  // namespace moe::cuda
