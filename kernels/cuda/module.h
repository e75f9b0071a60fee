// SPDX-License-Identifier: MIT
#pragma once
// The interface of libmoe_cuda.so, which libmoe opens at run time. Both must come from one build
// because they share C++ types: nothing is used before the build names match.

#include <stdint.h>

#include "kernels/device.h"
#include "src/base/log.h"

namespace moe {

struct CudaModule {
  const char* build;  // kModuleBuild of the module
  /// As cuda::open_cuda_device and close_cuda_device. `cpu` computes work not worth uploading; it
  /// must outlive the device.
  Status (*open)(int32_t index, uint64_t memory_limit, Device& cpu, const Logger& logger,
                 const Allocator& allocator, Device** out);
  void (*close)(Device* device);
};

inline constexpr char kModuleFile[] = "libmoe_cuda.so";
inline constexpr char kModuleSymbol[] = "moe_cuda_module";
/// Version, and everything that changes the layout of shared types.
#define MOE_MODULE_TEXT_(x) #x
#define MOE_MODULE_TEXT(x) MOE_MODULE_TEXT_(x)
inline constexpr char kModuleBuild[] = MOE_MODULE_TEXT(MOE_VERSION_MAJOR) "." MOE_MODULE_TEXT(
    MOE_VERSION_MINOR) "." MOE_MODULE_TEXT(MOE_VERSION_PATCH) "/" MOE_MODULE_BUILD;

}  // namespace moe
