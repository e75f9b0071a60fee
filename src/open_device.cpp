// SPDX-License-Identifier: MIT
#include "src/open_device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "kernels/cpu/device_cpu.h"
#include "kernels/cuda/module.h"
#include "src/code_folder.h"

namespace moe {
namespace {

constexpr char kCannot[] = "the CUDA module cannot be loaded";

#if MOE_LOADS_CUDA
constexpr char kInstalled[] = MOE_MODULE_FOLDER;  // or empty

// Opens `folder`/libmoe_cuda.so by its absolute path. False where there is no such file.
bool found_in(const char* folder, void** module) {
  char path[4096 + sizeof kModuleFile];
  std::snprintf(path, sizeof path, "%s/%s", folder, kModuleFile);
  if (access(path, F_OK) != 0) return false;
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return true;
}

// The module next to this library, otherwise the installed one. Never by name alone: the loader
// would search folders that others can write to. It stays loaded: CUDA cannot be unloaded safely.
Result<void*> load_module() {
  char beside[4096];
  void* module = nullptr;
  if (!(code_folder(beside, sizeof beside) && found_in(beside, &module)) &&
      !(kInstalled[0] != '\0' && found_in(kInstalled, &module))) {
    const char* other = std::strcmp(beside, kInstalled) != 0 ? kInstalled : "";
    return Status::error(MOE_ERR_DEVICE, "%s: no %s in %s%s%s", kCannot, kModuleFile, beside,
                         beside[0] != '\0' && other[0] != '\0' ? " or " : "", other);
  }
  if (module != nullptr) return module;
  const char* reason = dlerror();
  return Status::error(MOE_ERR_DEVICE, "%s: %s", kCannot, reason != nullptr ? reason : kModuleFile);
}
#endif

// "cuda" or "cuda:N".
bool parse_cuda(const char* name, int32_t* index) {
  if (std::strncmp(name, "cuda", 4) != 0) return false;
  *index = 0;
  if (name[4] == '\0') return true;
  if (name[4] != ':' || name[5] < '0' || name[5] > '9') return false;
  int32_t n = 0;
  const char* p = name + 5;
  for (; *p >= '0' && *p <= '9' && n < 10000; ++p) n = 10 * n + (*p - '0');
  *index = n;
  return *p == '\0';
}

}  // namespace

OpenDevice::~OpenDevice() {
  if (close_module_ != nullptr) close_module_(device_);
  close_cpu_device(cpu_);
}

#if MOE_LOADS_CUDA
Status OpenDevice::open_cuda(int32_t index, uint64_t limit, const Logger& logger,
                             const Allocator& allocator) {
  MOE_ASSIGN(void* handle, load_module());
  using Entry = const CudaModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kModuleSymbol));
  const CudaModule* module = entry != nullptr ? entry() : nullptr;
  if (module == nullptr || std::strcmp(module->build, kModuleBuild) != 0) {
    return Status::error(MOE_ERR_DEVICE, "%s: expected build %s, found %s", kModuleFile,
                         kModuleBuild, module != nullptr ? module->build : "none");
  }
  MOE_TRY(module->open(index, limit, *cpu_, logger, allocator, &device_));
  close_module_ = module->close;
  return {};
}
#else
Status OpenDevice::open_cuda(int32_t, uint64_t, const Logger&, const Allocator&) {
  return Status::error(MOE_ERR_DEVICE, "%s: this build loads none", kCannot);
}
#endif

Status OpenDevice::open(const DeviceChoice& choice, ThreadPool& pool, const Logger& logger,
                        const Allocator& allocator) {
  const char* name = choice.name != nullptr ? choice.name : "auto";
  const bool automatic = std::strcmp(name, "auto") == 0;
  int32_t index = 0;
  const bool cuda = parse_cuda(name, &index);
  if (!automatic && !cuda && std::strcmp(name, "cpu") != 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "device: expected auto, cpu, cuda or cuda:N, found '%.40s'", name);
  }
  MOE_ASSIGN(cpu_, open_cpu_device(choice.isa, pool, allocator));
  if (cuda) {
    return open_cuda(index, choice.gpu_memory, logger, allocator).with_context("device %s", name);
  }
  // A GPU is never taken unasked until tests/gpu/run.sh has passed on one.
  if (automatic) logger.log(LogLevel::kInfo, "on the CPU: a GPU is used only if named, as cuda");
  device_ = cpu_;
  return {};
}

}  // namespace moe
