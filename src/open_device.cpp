#include "src/open_device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "kernels/cpu/device_cpu.h"
#include "kernels/cuda/module.h"

namespace moe {
namespace {

void say_why(char* reason, size_t n) {
  const char* error = dlerror();
  std::snprintf(reason, n, "%s", error != nullptr ? error : kModuleFile);
}

// The module beside this library, or wherever the loader looks. It stays loaded: CUDA cannot be
// unloaded safely.
void* load_module(char* reason, size_t n) {
  Dl_info self;
  char path[4096];
  if (dladdr(reinterpret_cast<const void*>(&load_module), &self) != 0 &&
      self.dli_fname != nullptr) {
    const char* slash = std::strrchr(self.dli_fname, '/');
    const int folder = slash != nullptr ? static_cast<int>(slash - self.dli_fname) : 0;
    const int length = std::snprintf(path, sizeof path, "%.*s%s%s", folder, self.dli_fname,
                                     slash != nullptr ? "/" : "./", kModuleFile);
    if (length > 0 && static_cast<size_t>(length) < sizeof path) {
      if (void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return module;
      if (access(path, F_OK) == 0) {  // there, but of no use: that is what to tell
        say_why(reason, n);
        return nullptr;
      }
    }
  }
  void* module = dlopen(kModuleFile, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) say_why(reason, n);
  return module;
}

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

Status OpenDevice::open_cuda(int32_t index, uint64_t limit, const Allocator& allocator) {
  char reason[256];
  void* handle = load_module(reason, sizeof reason);
  if (handle == nullptr) {
    return Status::error(MOE_ERR_DEVICE, "the CUDA module cannot be loaded: %s", reason);
  }
  using Entry = const CudaModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, kModuleSymbol));
  const CudaModule* module = entry != nullptr ? entry() : nullptr;
  if (module == nullptr || std::strcmp(module->build, kModuleBuild) != 0) {
    return Status::error(MOE_ERR_DEVICE, "%s: expected build %s, found %s", kModuleFile,
                         kModuleBuild, module != nullptr ? module->build : "none");
  }
  MOE_TRY(module->open(index, limit, *cpu_, allocator, &device_));
  close_module_ = module->close;
  return {};
}

Status OpenDevice::open(const DeviceChoice& choice, ThreadPool& pool, const Logger& logger,
                        const Allocator& allocator) {
  const char* name = choice.name != nullptr ? choice.name : "auto";
  const bool automatic = std::strcmp(name, "auto") == 0;
  int32_t index = 0;
  const bool cuda = parse_cuda(name, &index);
  if (!automatic && !cuda && std::strcmp(name, "cpu") != 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "params.device: expected auto, cpu, cuda or cuda:N, found '%.40s'", name);
  }
  MOE_ASSIGN(cpu_, open_cpu_device(choice.isa, pool, allocator));
  if (automatic || cuda) {
    const Status status = open_cuda(index, choice.gpu_memory, allocator);
    if (status.ok()) return {};
    if (cuda) return status.with_context("device %s", name);
    logger.log(LogLevel::kInfo, "on the CPU: %s", status.text());
  }
  device_ = cpu_;
  return {};
}

}  // namespace moe
