#pragma once
// What libmoe_cuda.so gives to libmoe, which opens it at run time. Both come from one build: they
// share C++ types, so nothing is used before the build's name agrees.

#include <stdint.h>

#include "kernels/device.h"

namespace moe {

struct CudaModule {
  const char* build;  // kModuleBuild of the module
  /// As cuda::open_cuda_device and close_cuda_device.
  /// `cpu` computes what is not worth bringing to the GPU; it must outlive the device.
  Status (*open)(int32_t index, uint64_t memory_limit, Device& cpu, const Allocator& allocator,
                 Device** out);
  void (*close)(Device* device);
};

inline constexpr char kModuleFile[] = "libmoe_cuda.so";
inline constexpr char kModuleSymbol[] = "moe_cuda_module";
/// Version, and what changes with the layout of the types that cross the border.
#define MOE_MODULE_TEXT_(x) #x
#define MOE_MODULE_TEXT(x) MOE_MODULE_TEXT_(x)
inline constexpr char kModuleBuild[] = MOE_MODULE_TEXT(MOE_VERSION_MAJOR) "." MOE_MODULE_TEXT(
    MOE_VERSION_MINOR) "." MOE_MODULE_TEXT(MOE_VERSION_PATCH) "/" MOE_MODULE_BUILD;

}  // namespace moe
