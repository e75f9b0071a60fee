// SPDX-License-Identifier: MIT
#pragma once
// Opens a device by name.

#include "kernels/device.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"

namespace moe {

struct DeviceChoice {
  const char* name = nullptr;  // null or "auto", "cpu", "cuda", "cuda:N"
  const char* isa = nullptr;   // of the CPU device; null: the best
  uint64_t gpu_memory = 0;     // limit; 0, or above: 15/16 of the free memory
};

/// Owns an open device.
class OpenDevice {
 public:
  OpenDevice() = default;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice();

  /// "auto" uses the first working GPU, otherwise the CPU, and logs the reason. MOE_ERR_ARGUMENT
  /// for an unknown name, MOE_ERR_DEVICE if the requested GPU is not usable, MOE_ERR_UNSUPPORTED
  /// for an instruction set.
  Status open(const DeviceChoice& choice, ThreadPool& pool, const Logger& logger,
              const Allocator& allocator);
  Device* get() const { return device_; }

 private:
  Status open_cuda(int32_t index, uint64_t limit, const Logger& logger, const Allocator& allocator);

  Device* device_ = nullptr;  // cpu_ or the module's
  Device* cpu_ = nullptr;     // for work not worth copying to the module's device
  void (*close_module_)(Device*) = nullptr;
};

}  // namespace moe
