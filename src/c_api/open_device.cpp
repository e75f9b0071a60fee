// SPDX-License-Identifier: MIT
// Parses "cpu" and "cuda:N", and loads libmoe_cuda from the folder of this library or the one it
// was installed to.
#include "src/c_api/open_device.h"

#include <cstring>

#include "kernels/cpu/device_cpu.h"
#include "kernels/cuda/module.h"
#include "src/base/format.h"
#include "src/base/number.h"
#include "src/base/os/file.h"
#include "src/base/os/module.h"

namespace moe {
namespace {

constexpr char kCannot[] = "the CUDA module cannot be loaded";

#if MOE_LOADS_CUDA
constexpr char kInstalled[] = MOE_MODULE_FOLDER;  // or empty

/// A module that is there, or why it cannot be loaded.
struct Loaded {
  void* module = nullptr;
  char reason[512];
};

// Opens `folder`/libmoe_cuda.so by its absolute path. False where there is no such file.
bool found_in(const char* folder, Loaded* out) {
  char path[4096 + sizeof kModuleFile];
  format(path, sizeof path, "%s/%s", folder, kModuleFile);
  FileInfo info;
  if (path_info(path, &info) != 0) return false;
  out->module = open_module(path, {}, out->reason, sizeof out->reason);
  return true;
}

// The module next to this library, otherwise the installed one. Never by name alone: the loader
// would search folders that others can write to. It stays loaded: CUDA cannot be unloaded safely.
Result<void*> load_module() {
  char beside[4096];
  Loaded found;
  if (!(code_folder(beside, sizeof beside) && found_in(beside, &found)) &&
      !(kInstalled[0] != '\0' && found_in(kInstalled, &found))) {
    const char* other = std::strcmp(beside, kInstalled) != 0 ? kInstalled : "";
    return Status::error(MOE_ERR_DEVICE, "%s: no %s in %s%s%s", kCannot, kModuleFile, beside,
                         beside[0] != '\0' && other[0] != '\0' ? " or " : "", other);
  }
  if (found.module != nullptr) return found.module;
  return Status::error(MOE_ERR_DEVICE, "%s: %s", kCannot, found.reason);
}
#endif

// "cuda" or "cuda:N".
bool parse_cuda(const char* name, int32_t* index) {
  if (std::strncmp(name, "cuda", 4) != 0) return false;
  *index = 0;
  if (name[4] == '\0') return true;
  if (name[4] != ':' || !is_digit(name[5])) return false;
  int32_t n = 0;
  const char* p = name + 5;
  for (; is_digit(*p) && n < 10000; ++p) n = 10 * n + (*p - '0');
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
  const auto entry = reinterpret_cast<Entry>(module_symbol(handle, kModuleSymbol));
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
  // A GPU is never taken unasked: it cannot run every model, and few kinds of GPU were tried.
  if (automatic) logger.log(LogLevel::kInfo, "on the CPU: a GPU is used only if named, as cuda");
  device_ = cpu_;
  return {};
}

}  // namespace moe
