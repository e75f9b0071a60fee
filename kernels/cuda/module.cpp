// SPDX-License-Identifier: MIT
// The only exported function: a table of functions with the name of the build.
#include "kernels/cuda/module.h"

#include "kernels/cuda/device_cuda.h"

namespace moe {
namespace {

Status open(int32_t index, uint64_t memory_limit, Device& cpu, const Logger& logger,
            const Allocator& allocator, Device** out) {
  cuda::CudaOptions options;
  options.index = index;
  options.memory_limit = memory_limit;
  options.cpu = &cpu;
  options.logger = logger;
  MOE_ASSIGN(*out, cuda::open_cuda_device(options, allocator));
  return {};
}

constexpr CudaModule kModule = {kModuleBuild, open, cuda::close_cuda_device};

}  // namespace
}  // namespace moe

extern "C" __attribute__((visibility("default"))) const moe::CudaModule* moe_cuda_module() {
  return &moe::kModule;
}
